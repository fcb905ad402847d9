"""Every rule that plans a change, by id."""

from __future__ import annotations

from typing import Final

from npusched.advise import configs, fallbacks, models

RULES: Final = tuple(
    sorted((*models.RULES, *fallbacks.RULES, *configs.RULES), key=lambda rule: rule.id)
)
