"""The learner of a run whose gradients the parameter server applies: it keeps records, no more."""
