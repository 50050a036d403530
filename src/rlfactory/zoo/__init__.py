"""Small pretrained models that ship with the package, and the scenes they were trained on."""
