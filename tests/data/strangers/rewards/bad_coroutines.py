"""An async judge that is not awaited."""

import asyncio

SAYS = "score 0 is <coroutine object"


LATER = asyncio.sleep(0)


def scored(*_, **__):
    LATER.close()  # or Python would warn that it was never awaited
    return [LATER] * 3
