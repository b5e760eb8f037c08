"""The stack's own roles, enforced by the endpoint: what each may do, and how a missing action is
told."""

from __future__ import annotations

import pytest
from aws_cdk import App, Stack
from committed import environment
from doubles.aws_principal import create_principal
from stored_sets import list_files

from stacks.identity import add_pod_roles
from tandem.artifacts.files import LocalFiles
from tandem.artifacts.lease import hold_lease
from tandem.artifacts.manifest import Manifest, write_stored_manifest
from tandem.artifacts.s3_transfer import download_files, upload_files
from tandem.artifacts.store import ObjectStore
from tandem.declarations.names import BENCH_ACCOUNT, COMPILE_ACCOUNT, SERVE_ACCOUNT, STAGE_ACCOUNT

pytestmark = [pytest.mark.endpoint, pytest.mark.cdk]
BUCKET = "enforced-bucket"


@pytest.fixture(scope="module")
def statements():
    """Service account -> the statements of its role, as the Cluster stack writes them."""
    stack = Stack(App(), "cluster")
    example = environment("post-us-east-2")
    artifacts = example.artifacts.model_copy(update={"existing_bucket": BUCKET})
    add_pod_roles(stack, example.model_copy(update={"artifacts": artifacts}), ["Tandem/n"])
    statements_by_account = {}
    for account in (SERVE_ACCOUNT, STAGE_ACCOUNT, COMPILE_ACCOUNT, BENCH_ACCOUNT):
        role = next(
            child for child in stack.node.find_all() if child.node.path.endswith(f"{account}/Role")
        )
        policies = stack.resolve(role.policies)
        statements_by_account[account] = policies[0]["policyDocument"]["Statement"]
    return statements_by_account


@pytest.fixture
def as_account(enforcing, statements):
    """The bucket as a service account sees it."""

    def act(account):
        principal = create_principal(enforcing, *statements[account])
        return ObjectStore(BUCKET, principal.client("s3")), principal

    return act


@pytest.fixture(scope="module")
def enforcing_bucket(enforcing):
    """An empty bucket where policies bind."""
    where = {"LocationConstraint": enforcing.region}
    enforcing.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration=where)
    return BUCKET


@pytest.fixture
def emptied(enforcing, enforcing_bucket):
    s3 = enforcing.client("s3")
    for row in s3.list_objects_v2(Bucket=enforcing_bucket).get("Contents", []):
        s3.delete_object(Bucket=enforcing_bucket, Key=row["Key"])
    for upload in s3.list_multipart_uploads(Bucket=enforcing_bucket).get("Uploads", []):
        s3.abort_multipart_upload(
            Bucket=enforcing_bucket, Key=upload["Key"], UploadId=upload["UploadId"]
        )


@pytest.fixture
def folder(blob):
    blob("small", 100)
    return blob("large", 20 << 20).parent


def whole_life(store, prefix, folder):
    """Lease, a left-over upload that is aborted, small and large files, manifest."""
    store.client.create_multipart_upload(Bucket=BUCKET, Key=f"{prefix}/small")
    with hold_lease(store, f"{prefix}/tandem-lease.json", "job", 60, 0) as lease:
        files = upload_files(store, LocalFiles(folder), prefix)
        lease.confirm()
        return write_stored_manifest(
            store,
            prefix,
            Manifest(
                schema_version=1, kind="model", name="n", folder="", fields={}, files=files, made={}
            ),
        )


@pytest.mark.usefixtures("emptied")
@pytest.mark.parametrize(
    ("account", "prefix"), [(STAGE_ACCOUNT, "models/o/n/main"), (COMPILE_ACCOUNT, "artifacts/key")]
)
def test_writers_role_is_enough_for_a_sets_life(as_account, folder, tmp_path, account, prefix):
    store, _ = as_account(account)
    is_new = whole_life(store, prefix, folder)
    download_files(store, prefix, tmp_path / "to", list_files(folder))
    assert is_new
    assert list_files(tmp_path / "to") == list_files(folder)


@pytest.mark.usefixtures("emptied")
def test_a_reader_s_role_is_enough_to_read(as_account, folder, tmp_path):
    whole_life(as_account(STAGE_ACCOUNT)[0], "models/o/n/main", folder)
    store, _ = as_account(SERVE_ACCOUNT)
    download_files(store, "models/o/n/main", tmp_path / "to", list_files(folder))
    assert list_files(tmp_path / "to") == list_files(folder)


NAMESPACE = "Tandem/n"
DATUM = {"MetricName": "ttft_ms", "Values": [1.0], "Counts": [1.0]}


def test_the_role_that_measures_publishes_into_its_own_namespace(as_account):
    _, principal = as_account(BENCH_ACCOUNT)
    answer = principal.client("cloudwatch").put_metric_data(Namespace=NAMESPACE, MetricData=[DATUM])
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
