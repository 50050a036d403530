"""From a plan to trained weights: build, trainer, learner, session."""
