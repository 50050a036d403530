"""`rlfactory export`: a run's weights for other libraries, with a model card and loading code."""
