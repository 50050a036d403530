"""Being asked to stop: at first a wish, which is granted between two iterations."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

SAID = b"\nstopping after this iteration; once more stops at once, and what it learned is lost\n"


class Stop:
    """Within `with`, a first Ctrl-C sets `asked`; a second one interrupts at once."""

    SIGNALS = (signal.SIGINT,)

    def __init__(self) -> None:
        self.asked = False
        self._former: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # only the main thread can listen; elsewhere someone else decides about signals
        if threading.current_thread() is threading.main_thread():
            self._former = {number: signal.getsignal(number) for number in self.SIGNALS}
            for number, former in self._former.items():
                if former is not signal.SIG_IGN:
                    signal.signal(number, self._hear)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        os.write(2, SAID)  # not print: it may have been interrupted in the middle of one
