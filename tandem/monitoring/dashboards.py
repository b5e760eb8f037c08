"""Every dashboard of an environment: one that compares the arms of each experiment, one for the machine, one for money.

Invariant: a function of the scope alone. What is drawn is published, and a figure that the bench publishes is drawn.

Expressions are few, so that the tests can evaluate each of them without CloudWatch. An ID is a line's or an
expression's id, a NUMBER a plain decimal:

    IF(ID * ID > 0, ID / ID)            speed-up, absent where one of the two has no point: alone it would be 0 there
    ID / NUMBER                         node-minutes of a period -> nodes, or hours; tokens of a period -> a second's
    ID / NUMBER * NUMBER                node-minutes -> USD
    100 * ID / ID                       a share in percent
    IF(ID > 0, 1 + ID / ID)             acceptance length by the server's counters
    FILL(ID, 0)                         what is not sent counts as none
    RUNNING_SUM(FILL(ID, 0)) / NUMBER
    RUNNING_SUM(FILL(ID, 0)) / NUMBER * NUMBER
    SEARCH('{"NAMESPACE",DIM,DIM,...} MetricName="NAME" DIM="VALUE" ...', 'STATISTIC', PERIOD_S)
    SUM(SEARCH(...))                    one series: the sum of what was found, period by period

A SEARCH finds the metrics of its namespace that have exactly the named dimensions and, where a value is given, exactly
that value; each found one is a series, whose label holds the values of its dimensions as `${PROP('Dim.NAME')}`.

A graph whose view is `numbers` has one period: the whole time range that is looked at (CloudWatch's
setPeriodToTimeRange), for its lines as for its expressions.
"""

from __future__ import annotations

from tandem.monitoring import cost_dashboard, experiment_dashboard, infrastructure_dashboard
from tandem.monitoring.scope import MonitoringScope
from tandem.monitoring.widget import Dashboard


def build_dashboards(scope: MonitoringScope) -> tuple[Dashboard, ...]:
    """Return every dashboard of an environment: its experiments in its order, then the machine, then money."""
    return (
        *(experiment_dashboard.build_experiment_dashboard(scope.environment, member) for member in scope.experiments),
        infrastructure_dashboard.build_infrastructure_dashboard(scope),
        cost_dashboard.build_cost_dashboard(scope),
    )
