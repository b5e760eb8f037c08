"""Every dashboard of an environment: each experiment's comparison, the machine, money.

Invariant: a function of the scope alone. Every drawn metric is published, and every figure of the
bench is drawn.

Expressions are few, so that the tests can evaluate each of them without CloudWatch. An ID is a
line's or an expression's id, a NUMBER a plain decimal:

    IF(ID * ID > 0, ID / ID)    speed-up; absent, not 0, where one of the two has no point
    ID / NUMBER                 nodes or hours of node-minutes; tokens a second
    ID / NUMBER * NUMBER        USD of node-minutes
    100 * ID / ID               a share in percent
    IF(ID > 0, 1 + ID / ID)     acceptance length by the server's counters
    FILL(ID, 0)                 a missing value counts as 0
    RUNNING_SUM(FILL(ID, 0)) / NUMBER
    RUNNING_SUM(FILL(ID, 0)) / NUMBER * NUMBER
    SEARCH('{"NAMESPACE",DIM,DIM,...} MetricName="NAME" DIM="VALUE" ...', 'STATISTIC', PERIOD_S)
    SUM(SEARCH(...))            one series: the sum of the found series, period by period

A SEARCH finds the metrics of its namespace that have exactly the named dimensions and, if a value
is given, exactly that value. Each found metric is a series, whose label holds the values of its
dimensions as `${PROP('Dim.NAME')}`.

A graph whose view is `numbers` has one period: the whole time range in view (CloudWatch's
setPeriodToTimeRange), for its lines and for its expressions.

A choice is a variable of type `pattern`, not of type `property`. A property variable rewrites its
dimension everywhere, also inside of SEARCH expressions, so no graph could keep its class next to
one that varies. AWS's own aws/sagemaker-python-sdk, src/sagemaker/model_monitor/dashboards.py,
relies on that. A pattern is only in the graphs that vary.

CloudWatch's forms are from "Dashboard Body Structure and Syntax" (docs.aws.amazon.com,
AmazonCloudWatch, API reference, read 2026-11-21). `stacks/dashboards.py` draws the dashboards.
"""

from __future__ import annotations

from tandem.monitoring.cost_dashboard import build_cost_dashboard
from tandem.monitoring.experiment_dashboard import build_experiment_dashboard
from tandem.monitoring.infrastructure_dashboard import build_infrastructure_dashboard
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.widget import Dashboard


def build_dashboards(scope: MonitoringScope) -> tuple[Dashboard, ...]:
    """Return an environment's dashboards: experiments in order, the machine, money."""
    experiments = (
        build_experiment_dashboard(scope.environment, member) for member in scope.experiments
    )
    return (*experiments, build_infrastructure_dashboard(scope), build_cost_dashboard(scope))
