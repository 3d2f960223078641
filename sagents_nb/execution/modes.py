"""Modes: what one cycle of the loop consists of. Put your own together from the steps."""

from __future__ import annotations

from dataclasses import dataclass

from sagents_nb.errors import ConfigurationError
from sagents_nb.execution.model_call import ask_model
from sagents_nb.execution.steps import (
    CYCLE,
    Step,
    after_model,
    before_model,
    check_limits,
    check_pause,
    finish,
    finish_without_errors,
    repair,
)


@dataclass(frozen=True, slots=True)
class Mode:
    """The steps of a cycle; cycles follow each other until the model has answered or a step ends the run.

    ::

        Agent(model=…, mode=Mode("review first", (*CYCLE[:-2], wait_for_review, *CYCLE[-2:])))

    Attributes:
        name: what it is called.
        steps: async functions of the run, in order. The names of all must differ but for `check_pause`, since a run
            that was stopped goes on at a step by its name.

    Raises:
        ConfigurationError: there is no step, one is no function, or two have one name.
    """

    name: str
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        steps = tuple(self.steps)
        object.__setattr__(self, "steps", steps)
        wrong = next((step for step in steps if not callable(step) or not hasattr(step, "__name__")), None)
        if not steps or wrong is not None:
            raise ConfigurationError(
                f"Mode({self.name!r}): steps are async functions of the run, got {wrong!r}; begin with "
                "sagents_nb.execution.steps.CYCLE"
            )
        names = [step.__name__ for step in steps if step is not check_pause]
        double = next((name for name in names if names.count(name) > 1), None)
        if double is not None:
            raise ConfigurationError(
                f"Mode({self.name!r}) has two steps named {double!r}; a run that was stopped would not know at which "
                "to go on: give one another name"
            )


DEFAULT = Mode("default", CYCLE)
"""Ask the model and run its tools until it has answered."""

ONE_CALL = Mode("one call", (check_limits, repair, before_model, ask_model, after_model, finish))
"""One model call; its tools are not run."""

ONE_CYCLE = Mode("one cycle", (*CYCLE, finish))
"""One model call and its tools; go on with ``agent.execute(result.state)``."""

UNTIL_SUCCESS = Mode("until success", (*CYCLE, finish_without_errors))
"""Until the model answers, or all tools of a cycle succeed: the model gets no last word."""
