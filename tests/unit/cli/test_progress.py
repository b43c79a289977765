"""Where a run stands, from the registry's answers."""

import time

import pytest
from rich.console import Console

from mycelia.params.v1 import params_pb2
from mycelia.run.v1 import run_pb2 as pb
from mycelia_cli.plain import PlainView, line
from mycelia_cli.progress import ProgressTracker
from mycelia_cli.settings import resolve
from mycelia_cli.view import LiveView, clock, render, sparkline

CONFIG = resolve("apex-cartpole", [], {}).config


def answer(**fields):
    """A run that trains, with one actor that has left and two that act."""
    run = pb.Run(run_id="0123456789ab", name="apex-cartpole", phase=pb.PHASE_TRAINING)
    run.train_start_time.FromSeconds(int(time.time()) - 10)
    members = [
        member(pb.ROLE_ACTOR, policy_version=7, insert_wait_seconds=1.0),
        member(pb.ROLE_ACTOR, policy_version=5, insert_wait_seconds=1.0),
        member(pb.ROLE_ACTOR, alive=False, policy_version=1),
        member(pb.ROLE_REPLAY, replay_rows=2_000, inserted_items=1_000, sampled_items=4_000),
        member(pb.ROLE_LEARNER, learner_steps=300, sample_wait_seconds=2.0),
    ]
    progress = pb.Progress(
        env_steps=2_000,
        episode_count=2,
        recent_episodes=[pb.Episode(episode_return=r, length=1) for r in (10, 20)],
        evaluations=[evaluation(3, [100, 200]), evaluation(7, [480, 470])],
    )
    return pb.GetRunResponse(
        run=run, members=members, progress=progress, weight_version=7, **fields
    )


def member(role, *, alive=True, **counters):
    return pb.Member(role=role, alive=alive, pid=1, counters=counters)


def evaluation(version, returns):
    record = pb.Evaluation(policy_version=version, env_steps=version * 100, episode_returns=returns)
    record.record_time.FromSeconds(int(time.time()))
    return record


def test_a_moment_sums_up_what_members_report():
    progress = ProgressTracker(CONFIG).update(answer())

    assert progress.phase == "training"
    assert progress.learner_steps == 300
    assert progress.replay_rows == 2_000
    assert progress.samples_per_insert == 4.0
    assert progress.recent_return_mean == 15.0
    assert progress.staleness == (0, 2)
    assert progress.train_seconds == pytest.approx(10, abs=2)
    assert sorted(progress.members) == ["actor", "actor", "learner", "replay"]
    assert progress.evaluations[0].return_mean == 150.0
    assert progress.evaluations[0].return_std == 50.0


def test_waits_are_parts_of_the_time_since_the_last_looks():
    tracker = ProgressTracker(CONFIG)
    first, second = answer(), answer()
    second.members[0].counters["insert_wait_seconds"] += 100.0

    tracker.update(first)
    time.sleep(0.01)
    progress = tracker.update(second)

    assert progress.insert_wait_share == 1.0
    assert progress.sample_wait_share == 0.0


def test_what_a_member_did_still_counts_when_it_has_left():
    tracker = ProgressTracker(CONFIG)
    tracker.update(answer())
    later = answer()
    del later.members[:]

    progress = tracker.update(later)

    assert progress.learner_steps == 300
    assert progress.replay_rows == 2_000


def test_a_run_that_stands_says_whom_it_waits_for():
    settings = ["replay.shards=2", "param_server.shards=3", "actor.inference=central"]
    tracker = ProgressTracker(resolve("apex-cartpole", settings, {}).config)

    progress = tracker.update(answer())

    wanted = "not there: 1 replay (replay.shards), 2 param-shard (param_server.shards), 1 inference"
    assert wanted in line(progress)
    assert "not there" not in line(ProgressTracker(CONFIG).update(answer()))
    assert all("not there: 1 replay (replay.shards)" in text for text in pictures(progress))


def test_nobody_is_awaited_once_the_run_has_finished():
    last = answer()
    del last.members[:]
    assert ProgressTracker(CONFIG).update(last).awaited

    last.run.phase = pb.PHASE_FINISHED

    progress = ProgressTracker(CONFIG).update(last)
    assert not any("not there: 1" in text for text in [line(progress), *pictures(progress)])


def test_the_evaluation_that_solved_the_run_decides_though_a_later_one_was_worse():
    solved = answer()
    solved.run.outcome = pb.OUTCOME_SOLVED
    solved.progress.evaluations.append(evaluation(9, [300]))

    progress = ProgressTracker(CONFIG).update(solved)

    assert progress.is_solved
    assert progress.decisive_evaluation.policy_version == 7


def test_an_empty_run_has_no_numbers_to_make_up():
    progress = ProgressTracker(CONFIG).update(pb.GetRunResponse())

    assert progress.recent_return_mean is None
    assert progress.decisive_evaluation is None
    assert progress.train_seconds is None
    assert progress.samples_per_insert == 0.0
    assert line(progress)


def test_the_plain_line_says_all_that_matters():
    text = line(ProgressTracker(CONFIG).update(answer()))

    for part in (
        "training",
        "env steps 2,000",
        "updates 300",
        "replay 2,000/50,000",
        "samples per insert 4.0",
        "return 15.0",
        "eval 475.0 ± 5.0 of 475",
        "weights v7 (actors 0 to 2 behind)",
        "waiting actors 0%, learner 0%",
    ):
        assert part in text
    assert "\n" not in text


def without_replay():
    """A run of workers, as its members and its parameter server describe it."""
    moment = answer()
    del moment.members[3]
    info = params_pb2.GetGradientInfoResponse(
        update_count=400,
        push_counts={"applied": 1000, "refused_stale": 4, "late": 2, "not_finite": 1, "skipped": 1},
        staleness_counts=[700, 302, 4],
        staleness_sum=503,
        staleness_max=37,
        round_counts=[300, 100],
        round_bounds=[0.01],
        round_seconds=6.0,
        straggler_count=25,
        worker_count=3,
    )
    return moment, info


def pictures(progress):
    console = Console(width=140, record=True, force_terminal=True)
    console.print(render(progress))
    return line(progress), console.export_text()


def test_without_replay_the_views_tell_of_gradients_and_their_staleness():
    tracker = ProgressTracker(resolve("a3c-cartpole", [], {}).config)
    moment, info = without_replay()
    tracker.update(moment, info)
    info.push_counts["applied"] += 100
    time.sleep(0.05)
    progress = tracker.update(moment, info)

    assert 0 < progress.gradients.applied_per_second < 100 / 0.05
    assert progress.learner_steps == 400, "what the server has done, not what was heard of it"
    for text in pictures(progress):
        assert "1,100 applied" in text
        assert "6 too old, 2 refused" in text
        assert "0.50 mean, 37 max" in text
        for word in ("replay", "samples per insert", "rounds", "scaled", "actors"):
            assert word not in text.replace("2 actors", "")


def test_synchronous_runs_tell_of_rounds_and_stragglers():
    tracker = ProgressTracker(resolve("a2c-cartpole", [], {}).config)

    for text in pictures(tracker.update(*without_replay())):
        assert "6 late, 2 refused" in text
        assert "400 (0/s) of 3 workers, 15.0 ms, 25 stragglers" in text


def test_the_last_figures_stay_while_the_parameter_server_is_away():
    tracker = ProgressTracker(resolve("a3c-cartpole", [], {}).config)
    moment, info = without_replay()
    tracker.update(moment, info)

    assert tracker.update(moment, None).gradients.applied == 1000


def test_scaled_gradients_are_told_of():
    moment, info = without_replay()
    info.scaled_push_count = 12
    tracker = ProgressTracker(resolve("a3c-cartpole", [], {}).config)

    assert "12 of them scaled" in line(tracker.update(moment, info))


def test_plain_lines_come_when_due_and_when_the_phase_changes(capsys):
    import sys

    view = PlainView(sys.stdout, period_seconds=60)
    tracker = ProgressTracker(CONFIG)
    collecting = answer()
    collecting.run.phase = pb.PHASE_COLLECTING

    for moment in (collecting, collecting, answer(), answer()):
        view.update(tracker.update(moment))

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "collecting" in lines[0]
    assert "training" in lines[1]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_live_view_draws_at_any_width(width):
    console = Console(width=width, record=True, force_terminal=True)

    console.print(render(ProgressTracker(CONFIG).update(answer())))
    console.print(render(ProgressTracker(CONFIG).update(pb.GetRunResponse())))

    assert "training" in console.export_text()


def test_the_live_view_leaves_its_last_picture():
    console = Console(width=100, record=True, force_terminal=True)

    with LiveView(console) as view:
        view.note("a word [with brackets]")
        view.update(ProgressTracker(CONFIG).update(answer()))

    text = console.export_text()
    assert "a word [with brackets]" in text
    assert "475.0 ± 5.0 of 475" in text


@pytest.mark.parametrize(
    ("values", "bars"), [([5.0], "█"), ([0.0, 7.0], "▁█"), ([0.0, 0.0], "▁▁"), ([-7.0, 0.0], "▁█")]
)
def test_bars_reach_from_zero_or_the_lowest_to_the_highest(values, bars):
    assert sparkline(values) == bars


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (75.9, "1:15"), (3_661, "1:01:01")])
def test_the_clock_reads_as_clocks_do(seconds, text):
    assert clock(seconds) == text
