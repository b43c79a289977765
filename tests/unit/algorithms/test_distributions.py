"""Distributions against torch's own and numbers worked out by hand."""

import pytest
import torch

from mycelia_algorithms.networks.distributions import Categorical, DiagonalGaussian, kl_divergence


def test_a_categorical_agrees_with_torch():
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    action = torch.tensor([0, 1, 2, 3, 0, 1])
    torchs = torch.distributions.Categorical(logits=logits)

    ours = Categorical(logits)

    torch.testing.assert_close(ours.log_prob(action), torchs.log_prob(action))
    torch.testing.assert_close(ours.entropy(), torchs.entropy())


def test_the_entropy_of_three_logits_is_that_worked_out_by_hand():
    entropy = Categorical(torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64)).entropy()

    assert entropy.item() == pytest.approx(0.5242666167276728, rel=1e-12)


def test_a_gaussian_sums_over_its_dimensions():
    mean = torch.tensor([0.0, 1.0], dtype=torch.float64)
    log_std = torch.tensor([0.5, 2.0], dtype=torch.float64).log()
    gaussian = DiagonalGaussian(mean, log_std)

    log_prob = gaussian.log_prob(torch.tensor([0.3, -1.0], dtype=torch.float64))

    assert log_prob.item() == pytest.approx(-2.5178770664093455, rel=1e-12)
    assert gaussian.entropy().item() == pytest.approx(2.8378770664093453, rel=1e-12)


def test_samples_are_as_frequent_as_their_probabilities():
    logits = torch.tensor([0.0, 1.0, -1.0])
    generator = torch.Generator().manual_seed(7)

    drawn = Categorical(logits.expand(40_000, 3)).sample(generator)

    frequency = torch.bincount(drawn, minlength=3) / 40_000
    torch.testing.assert_close(frequency, logits.softmax(0), atol=0.01, rtol=0)


def test_divergences_agree_with_torch_and_are_zero_between_equals():
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(5, 3, generator=generator), torch.randn(5, 3, generator=generator)
    normal, categorical = torch.distributions.Normal, torch.distributions.Categorical

    discrete = kl_divergence(Categorical(a), Categorical(b))
    continuous = kl_divergence(DiagonalGaussian(a, b), DiagonalGaussian(b, a))

    expected = torch.distributions.kl_divergence(categorical(logits=a), categorical(logits=b))
    torch.testing.assert_close(discrete, expected)
    expected = torch.distributions.kl_divergence(normal(a, b.exp()), normal(b, a.exp())).sum(-1)
    torch.testing.assert_close(continuous, expected, rtol=1e-4, atol=1e-5)
    assert kl_divergence(Categorical(a), Categorical(a)).abs().max() < 1e-6


def test_distributions_of_different_kinds_have_no_divergence():
    with pytest.raises(TypeError, match="no divergence"):
        kl_divergence(Categorical(torch.zeros(2)), DiagonalGaussian(torch.zeros(2), torch.zeros(2)))
