"""What is published, how long a publish tries, and what it did."""

from __future__ import annotations

from dataclasses import dataclass, field

from tandem.metrics import BENCH, SIMULATED_NAMESPACE, format_namespace
from tandem.publish.cloudwatch import Retries
from tandem.publish.settle import Delays


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What is published, and where to.

    Args:
        environment, account, region: of the environment.
        experiment: the dimension.
        variants: every arm, as the dimension has it.
        run_id: pure function of the manifest.
        bucket: of the environment.
        command: what an operator gives to go on.
        simulated: whether an arm is a simulated server.
    """

    environment: str
    account: str
    region: str
    experiment: str
    variants: tuple[str, ...]
    run_id: str
    bucket: str
    command: str
    simulated: bool = False

    @property
    def namespace(self) -> str:
        """CloudWatch namespace; that of simulated servers holds nothing else."""
        if self.simulated:
            return SIMULATED_NAMESPACE.format(environment=self.environment)
        return format_namespace(BENCH, self.environment, "")

    @property
    def prefix(self) -> str:
        """Prefix of its objects in the bucket."""
        return f"results/{self.experiment}/{self.run_id}/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How long a publish tries; what the process runs in decides.

    Args:
        retries: of a request that was not done.
        delays: after which CloudWatch shows what it took.
        patience_s: most that a batch in doubt is waited for; longer than `delays.recent_s`, so that one of a run that
            has just ended is settled; with 0 nothing is looked at, which takes reading the whole run.
        glance_s: most that is waited where its time comes later than that.
        look_s: between the first two looks at what is in doubt; later ones are rarer.
    """

    retries: Retries = field(default_factory=Retries)
    delays: Delays = field(default_factory=Delays)
    patience_s: float = 960.0
    glance_s: float = 30.0
    look_s: float = 2.0


@dataclass(slots=True, kw_only=True)
class Report:
    """What one publish did; the sentences are for the operator.

    Args:
        rounds: numbers of the rounds of which nothing is left to be sent since.
        sent: batches that it sent, and that CloudWatch took.
        stored: objects that it stored.
        lost: what it gave up for good: classes that CloudWatch refuses, times too old, what nobody can settle. Each is
            in S3, and is told once.
        left: what a later publish will do.
        notes: what is as it should be, and a reader may ask about.
    """

    rounds: list[int] = field(default_factory=list)
    sent: int = 0
    stored: int = 0
    lost: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether all that it was to send was sent."""
        return not self.lost and not self.left
