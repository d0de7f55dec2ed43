"""Documents and check plans that many runs share parts of, kept so that the parts are stored once."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, cast

from sqlalchemy import insert, select

from step0_wandb.records import CheckPlan, ObservableRule, Rule
from step0_wandb.store import schema
from step0_wandb.store.codec import Template, TemplateDelta, compare, flatten, parsed, restore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Connection

    from step0_wandb.records import Json
    from step0_wandb.store.codec import Leaves

Kind = Literal["config", "rows", "verdict"]

TRIED = 16
"""So many of a kind's newest templates are compared with a document."""
NEAR = 1 / 16
"""Share of leaves with another word up to which the first template that is tried will do."""
FAR = 1 / 8
FEW = 8
"""A document becomes a template of its own with more than `FEW` other words and more than this share."""
SPARE = 8
PER_TEMPLATE = 16
"""New templates of a kind: `SPARE` at once and one for every `PER_TEMPLATE` documents, so that a fleet
without anything in common costs little more than its documents compressed one by one."""
_CACHED = 64


@dataclass(frozen=True, slots=True)
class Packed:
    """A document as it is stored: the template's row, and what differs from it."""

    template: int
    body: bytes


class Templates:
    """The templates of one open store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._by_id: OrderedDict[int, Template] = OrderedDict()
        self._under: dict[tuple[int, tuple[str, ...]], tuple[int, ...]] = {}
        self._recent: dict[Kind, list[int]] = {}
        self._spare: dict[Kind, float] = {}

    def forget(self) -> None:
        """Read everything again: a transaction that may have added templates was rolled back."""
        self._by_id.clear()
        self._under.clear()
        self._recent.clear()

    def start_over(self, kind: Kind) -> None:
        """Compare what is packed from now on with no template that there is already."""
        self._recent[kind] = []

    def pack(self, kind: Kind, document: Mapping[str, Json]) -> Packed:
        """Return a document as it is stored; may add a template."""
        leaves = flatten(document)
        recent = self._recent_of(kind)
        self._spare[kind] = min(SPARE, self._spare.get(kind, SPARE) + 1 / PER_TEMPLATE)
        best = self._nearest(leaves, recent)
        if best is None or (best.difference.words > max(FEW, FAR * len(leaves)) and self._spare[kind] >= 1):
            self._spare[kind] -= 1
            best = _Match(self._add(kind, Template(leaves)), TemplateDelta({}, [], [], 0))
        if best.template in recent:
            recent.remove(best.template)
        recent.insert(0, best.template)
        del recent[TRIED:]
        return Packed(best.template, best.difference.body())

    def unpack(self, template: int, body: bytes) -> dict[str, Json]:
        """Return the document that `pack` stored."""
        return restore(body, self._get(template))

    def unpack_under(self, keys: tuple[str, ...], template: int, body: bytes) -> dict[str, Json]:
        """Return at least what stands under some dotted paths, in a fraction of the time."""
        if (template, keys) not in self._under:
            self._under[template, keys] = self._get(template).under(keys)
        return restore(body, self._get(template), self._under[template, keys])

    def _recent_of(self, kind: Kind) -> list[int]:
        if kind not in self._recent:
            table = schema.templates
            newest = select(table.c.id).where(table.c.kind == kind).order_by(table.c.id.desc()).limit(TRIED)
            self._recent[kind] = list(self._connection.execute(newest).scalars())
        return self._recent[kind]

    def _nearest(self, leaves: Leaves, recent: list[int]) -> _Match | None:
        best: _Match | None = None
        for template in recent:
            match = _Match(template, compare(leaves, self._get(template)))
            if best is None or match.cost < best.cost:
                best = match
            if match.difference.words <= NEAR * len(leaves):
                break
        return best

    def _get(self, template: int) -> Template:
        if template in self._by_id:
            self._by_id.move_to_end(template)
            return self._by_id[template]
        table = schema.templates
        body = self._connection.execute(select(table.c.body).where(table.c.id == template)).scalar()
        return self._keep(template, Template.of_body(body or b""))

    def _add(self, kind: Kind, template: Template) -> int:
        table = schema.templates
        body = template.body()
        digest = blake2b(body, digest_size=16, person=kind.encode()).digest()
        known = self._connection.execute(select(table.c.id).where(table.c.digest == digest)).scalar()
        if known is None:
            row = insert(table).values(kind=kind, digest=digest, body=body).returning(table.c.id)
            known = int(self._connection.execute(row).scalar_one())
        self._keep(known, template)
        return known

    def _keep(self, number: int, template: Template) -> Template:
        self._by_id[number] = template
        if len(self._by_id) > _CACHED:
            self._by_id.popitem(last=False)
        return template


@dataclass(frozen=True, slots=True)
class _Match:
    template: int
    difference: TemplateDelta

    @property
    def cost(self) -> tuple[int, int]:
        return self.difference.words, len(self.difference)


class Plans:
    """The check plans of one open store."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._by_id: dict[int, CheckPlan] = {}
        self._ids: dict[CheckPlan, int] = {}

    def forget(self) -> None:
        """Read everything again: a transaction that may have added plans was rolled back."""
        self._by_id.clear()
        self._ids.clear()

    def number_of(self, plan: CheckPlan) -> int:
        """Return the row of a plan; may add it."""
        if plan not in self._ids:
            table = schema.plans
            body = json.dumps(asdict(plan), sort_keys=True)
            known = self._connection.execute(select(table.c.id).where(table.c.body == body)).scalar()
            if known is None:
                row = insert(table).values(body=body).returning(table.c.id)
                known = self._connection.execute(row).scalar_one()
            self._ids[plan] = known
        return self._ids[plan]

    def get(self, number: int) -> CheckPlan:
        """Return the plan of a row."""
        if number not in self._by_id:
            table = schema.plans
            body = self._connection.execute(select(table.c.body).where(table.c.id == number)).scalar()
            fields = cast("dict[str, Any]", parsed(body or ""))
            for rule in ("ppo_kl", "clip_frac", "gap"):
                fields[rule] = Rule(**fields[rule])
            fields["observables"] = tuple(ObservableRule(**rule) for rule in fields.get("observables", ()))
            self._by_id[number] = CheckPlan(**fields)
        return self._by_id[number]
