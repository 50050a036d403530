"""The network without its pipeline."""

from diffusers import UNet2DModel

SAYS = "of a pipeline's network hand over the pipeline"


def given(model, tokenizer):
    return {
        "model": UNet2DModel(
            sample_size=8,
            block_out_channels=(8,),
            norm_num_groups=1,
            down_block_types=("DownBlock2D",),
            up_block_types=("UpBlock2D",),
        ),
        "tokenizer": None,
    }
