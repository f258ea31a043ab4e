"""Orders of CAGE-2: its subtasks are the kinds of hosts to repair."""

from cavalcade.envs.cage2.scenario import HOST_TYPES
from cavalcade.workflow.orders import Subtasks

CAGE2 = Subtasks(
    HOST_TYPES,
    {
        "critical_first": ("defender", "op_server", "enterprise", "op_host", "user"),
        "enterprise_focus": ("enterprise", "defender", "op_server", "op_host", "user"),
        "user_priority": ("user", "defender", "enterprise", "op_server", "op_host"),
        "operational_focus": ("op_server", "op_host", "defender", "enterprise", "user"),
        "balanced": ("defender", "enterprise", "op_server", "user", "op_host"),
        "reverse": ("user", "op_host", "enterprise", "op_server", "defender"),
    },
)
