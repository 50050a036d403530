"""`rlfactory verify`: whether a run, made again from its folder, gives the same bits."""
