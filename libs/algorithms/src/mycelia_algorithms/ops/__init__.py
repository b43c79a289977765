"""The mathematics: pure functions of tensors, each with its paper and equation."""
