"""Lets an error of ours reach the user through Dynamo as itself.

Symptom without this: Dynamo wraps whatever a backend raises into `BackendCompilerFailed`, so that a user cannot
catch the SDK's own exception types.
"""

from __future__ import annotations

import functools
import inspect


def through_dynamo(error: Exception) -> Exception:
    """``error`` as an instance of its own class that Dynamo passes on unwrapped."""
    from torch._dynamo.exc import ShortenTraceback

    if isinstance(error, ShortenTraceback):
        return error
    carrier = _carrier(type(error))  # type: ignore[arg-type]
    passing = carrier.__new__(carrier)
    passing.args = error.args
    passing.__dict__.update(error.__dict__)
    passing.kept_cause = error.__cause__  # type: ignore[attr-defined]
    passing.first_useful_frame = inspect.currentframe()  # type: ignore[attr-defined]
    return passing.with_traceback(error.__traceback__)


@functools.cache
def _carrier(error_type: type[Exception]) -> type[Exception]:
    from torch._dynamo.exc import ShortenTraceback

    def remove_dynamo_frames(self: Exception) -> Exception:
        return self.with_traceback(None)

    return type(
        error_type.__name__,
        (error_type, ShortenTraceback),
        {
            "__module__": error_type.__module__,
            "__str__": error_type.__str__,
            "remove_dynamo_frames": remove_dynamo_frames,
            # Dynamo raises it "from None", and so would hide the vendor's own exception and its traceback.
            "__cause__": property(lambda self: self.kept_cause),
        },
    )
