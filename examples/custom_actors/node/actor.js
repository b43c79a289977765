// A custom actor in JavaScript: `node actor.js HOST:PORT` plays CartPole in the run there.
'use strict';

const os = require('node:os');
const path = require('node:path');
const { randomUUID } = require('node:crypto');
const { setTimeout: sleep } = require('node:timers/promises');
const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');
const { CartPole } = require('./cartpole');
const { WeightsReader, qValues } = require('./policy');

const ENVIRONMENTS = 8, CHUNK_ROWS = 8, MAX_IN_FLIGHT = 4;
const protos = grpc.loadPackageDefinition(loader.loadSync(
  ['run', 'params', 'replay'].map((area) => `mycelia/${area}/v1/${area}.proto`),
  { includeDirs: [path.join(__dirname, '../../../protos')], defaults: true, enums: String, longs: Number })).mycelia;

// What a row is made of. The dtype says how many bytes a value has and how they are written.
const COLUMNS = [
  { name: 'observation', dtype: 'D_TYPE_FLOAT32', shape: [4], write: (row) => Buffer.from(row.observation.buffer) },
  { name: 'action', dtype: 'D_TYPE_INT64', categoryCount: 2, write: (row) => int64(row.action) },
  { name: 'policy_version', dtype: 'D_TYPE_INT64', write: (row) => int64(row.version) },
  { name: 'reward', dtype: 'D_TYPE_FLOAT32', write: (row) => Buffer.from(Float32Array.of(row.reward).buffer) },
  ...['first', 'terminated', 'truncated'].map(
    (name) => ({ name, dtype: 'D_TYPE_BOOL', write: (row) => Buffer.of(row[name] ? 1 : 0) })),
];
const int64 = (value) => Buffer.from(BigInt64Array.of(BigInt(value)).buffer);
const signature = { columns: COLUMNS.map(({ write, ...spec }) => spec) };

// A unary call with a deadline; tried again while the server is not there or has no run yet.
async function call(client, method, request, patience = 0) {
  const { UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION } = grpc.status;
  for (const end = Date.now() + patience; ;) {
    try {
      return await new Promise((resolve, reject) => {
        client[method](request, { deadline: Date.now() + 5000 }, (error, answer) => (error ? reject(error) : resolve(answer)));
      });
    } catch (error) {
      if (Date.now() > end || ![UNAVAILABLE, DEADLINE_EXCEEDED, FAILED_PRECONDITION].includes(error.code)) throw error;
      await sleep(300);
    }
  }
}

class Actor {
  constructor(address) {
    this.registry = new protos.run.v1.RunService(address, grpc.credentials.createInsecure());
    this.params = new protos.params.v1.ParamService(address, grpc.credentials.createInsecure());
    this.instanceId = randomUUID();
    Object.assign(this, { weights: null, finished: false, envSteps: 0, episodes: [], sequence: 0 });
  }

  async join() {
    const request = { instanceId: this.instanceId, role: 'ROLE_ACTOR', host: os.hostname(), pid: process.pid, signature };
    const { run } = await call(this.registry, 'JoinRun', request, 120_000);
    this.runId = run.runId;
    this.table = JSON.parse(run.configJson).replay.name;
    for (;;) {
      const { members } = await call(this.registry, 'GetRun', { runId: this.runId }, 30_000);
      const replay = members.find((member) => member.role === 'ROLE_REPLAY' && member.alive && member.address);
      if (replay) return replay.address;
      await this.beat(); // the lease must not end while the actor waits
      await sleep(200);
    }
  }

  async beat() {
    const episodes = this.episodes.splice(0);
    const counters = { env_steps: this.envSteps, policy_version: this.weights?.version ?? 0 };
    this.sequence += 1;
    const request = { runId: this.runId, instanceId: this.instanceId, sequence: this.sequence, counters, episodes };
    const { phase } = await call(this.registry, 'Heartbeat', request, 30_000);
    this.finished ||= phase === 'PHASE_FINISHED';
  }

  watchWeights() {
    let reader;
    const stream = this.params.WatchWeights({ runId: this.runId, newerThanVersion: this.weights?.version ?? 0 });
    stream.on('data', ({ header, parts, last }) => {
      if (header) reader = new WeightsReader(header);
      reader.add(parts);
      if (last) this.weights = reader.finish();
    });
    stream.on('error', () => this.finished || setTimeout(() => this.watchWeights(), 500));
    this.weightStream = stream;
  }

  choose(observation, epsilon) {
    if (!this.weights || Math.random() < epsilon) return Math.random() < 0.5 ? 0 : 1;
    const q = qValues(this.weights.tensors, observation);
    return q[0] >= q[1] ? 0 : 1;
  }

  // One step of one environment: a row, and at an episode's end one more with the final observation.
  play(slot) {
    const version = this.weights?.version ?? 0, end = { terminated: false, truncated: false };
    const { observation, first } = slot, action = this.choose(observation, slot.epsilon);
    const result = slot.env.step(action);
    slot.rows.push({ observation, first, action, version, reward: result.reward, ...end });
    this.envSteps += 1;
    Object.assign(slot, { observation: result.observation, first: false, total: slot.total + result.reward });
    if (!result.terminated && !result.truncated) return;
    slot.rows.push({ ...result, first: false, action: 0, version, reward: 0 });
    this.episodes.push({ episodeReturn: slot.total, length: slot.env.steps });
    Object.assign(slot, { observation: slot.env.reset(), first: true, total: 0 });
  }

  // All rows of all streams in one request: the segments one after the other in every column.
  insertRequest(slots, sequence) {
    const rows = slots.flatMap((slot) => slot.rows);
    const segments = slots.map((slot) => ({ streamId: slot.streamId, startRow: slot.nextRow, rowCount: slot.rows.length }));
    const columns = COLUMNS.map(({ name, dtype, shape = [], write }) => (
      { name, values: { dtype, shape: [rows.length, ...shape], data: Buffer.concat(rows.map(write)) } }));
    for (const slot of slots) { slot.nextRow += slot.rows.length; slot.rows = []; }
    return { runId: this.runId, table: this.table, sequence, segments, columns };
  }

  async run() {
    const replay = new protos.replay.v1.ReplayService(await this.join(), grpc.credentials.createInsecure());
    this.watchWeights();
    const inserts = replay.Insert();
    let sequence = 0, acknowledged = 0, lastBeat = 0;
    inserts.on('data', (answer) => { acknowledged = Number(answer.sequence); });
    inserts.on('error', (error) => { if (!this.finished) { this.failure = error; this.finished = true; } });
    const slots = Array.from({ length: ENVIRONMENTS }, (_, i) => {
      const env = new CartPole();
      return { env, observation: env.state, first: true, total: 0, rows: [], nextRow: 0, streamId: `${this.instanceId}/${i}`,
        epsilon: 0.4 ** (1 + (7 * i) / (ENVIRONMENTS - 1)) }; // Ape-X: from 0.4 down to 0.4^8
    });
    while (!this.finished) {
      for (let row = 0; row < CHUNK_ROWS; row += 1) slots.forEach((slot) => this.play(slot));
      inserts.write(this.insertRequest(slots, sequence += 1));
      do { // the server acknowledges late while the learner is behind: wait, and go on reporting
        if (Date.now() - lastBeat > 500) { lastBeat = Date.now(); await this.beat(); }
        await sleep(1);
      } while (!this.finished && sequence - acknowledged >= MAX_IN_FLIGHT);
    }
    this.weightStream?.cancel();
    inserts.cancel();
    await call(this.registry, 'LeaveRun', { runId: this.runId, instanceId: this.instanceId }).catch(() => {});
    if (this.failure) throw this.failure;
  }
}

new Actor(process.argv[2]).run().then(() => process.exit(0), (error) => { console.error(String(error)); process.exit(1); });
