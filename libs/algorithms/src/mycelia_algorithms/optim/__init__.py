"""From gradients to new weights: flat parameters, clipping, Adam, learning-rate schedules."""
