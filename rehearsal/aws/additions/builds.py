# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""CodeBuild projects with all their properties, and simulated builds.

A simulated build takes the real source from its bucket, runs the project's own commands one by one,
and refuses unknown commands. No container runs and nothing is downloaded. `docker build` looks for
the files that the Dockerfile copies, and cannot pull a base at a host below `.invalid`. `docker
push` puts a manifest without layers into ECR.

`PUT /_tandem/builds` takes both knobs as JSON; `rehearsal.aws.build_behavior` explains them.
Invariant: an account runs no more builds at once than its quota, in a region.
"""

from __future__ import annotations

import contextvars
import io
import json
import shlex
import threading
import time
import zipfile

import yaml
from build_behavior import BuildBehavior
from ministack.core.responses import get_account_id, get_region
from ministack.services import cloudwatch_logs, codebuild, ecr, s3

from . import fleet_settings
from .handlers import ERROR_STATUS, require_success, wrap_changes

# property -> member of the API, for those that MiniStack's project does not keep
_EXTRA_MEMBERS = {
    "LogsConfig": "logsConfig",
    "QueuedTimeoutInMinutes": "queuedTimeoutInMinutes",
    "VpcConfig": "vpcConfig",
}
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
PATH = "/_tandem/builds"
_build_ids: dict = {}
_behavior = BuildBehavior()
# account and region of each build that runs, by its id; a restart ends them all
_running_builds: dict = {}
# two requests may ask for the last free place at once
_start_lock = threading.Lock()


class BuildCommandError(Exception):
    """A command of the build failed; the message is its output."""


def install(handlers: dict) -> None:
    """Wrap the project's handlers, CreateProject, UpdateProject and StartBuild."""
    wrap_changes(handlers["AWS::CodeBuild::Project"], after=_store_members)
    shape = codebuild._project_shape
    codebuild._project_shape = lambda project_record: {
        **shape(project_record),
        **{
            member: project_record[member]
            for member in _EXTRA_MEMBERS.values()
            if member in project_record
        },
    }
    codebuild._create_project = _keep_members(codebuild._create_project)
    codebuild._update_project = _keep_members(codebuild._update_project)
    start = codebuild._start_build
    codebuild._start_build = lambda data: _start_build(start, data)
    fleet_settings.routes[PATH] = _set_knobs
    fleet_settings.reset_actions.append(_reset)


def _reset():
    _set_knobs({})
    _running_builds.clear()


def _set_knobs(values):
    global _behavior  # noqa: PLW0603  # one endpoint has one
    _behavior = BuildBehavior(**values)


def _keep_members(change_project):
    """Return CreateProject or UpdateProject that keeps what MiniStack drops of a request."""

    def change(data):
        answer = change_project(data)
        if answer[0] >= ERROR_STATUS:
            return answer
        project = codebuild._projects[data["name"]]
        members = data.keys() & set(_EXTRA_MEMBERS.values())
        project.update({member: data[member] for member in members})
        return codebuild.json_response({"project": codebuild._project_shape(project)})

    return change


def _store_members(name, _old, properties, _attributes):
    for property_, member in _EXTRA_MEMBERS.items():
        if property_ in properties:
            codebuild._projects[name][member] = _to_camel_case(properties[property_])


def _to_camel_case(value):
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _to_camel_case(item) for key, item in value.items()}
    return int(value) if str(value).isdigit() else value


def _start_build(start_plain_build, data):
    """Start a build, if the account's quota has room for it."""
    with _start_lock:
        return _start_within_quota(start_plain_build, data)


def _start_within_quota(start_plain_build, data):
    """Start a build; the same token gives the same build, as CodeBuild does for a while."""
    token = (get_account_id(), get_region(), data.get("idempotencyToken"))
    if token[2] and _build_ids.get(token) in codebuild._builds:
        return 200, {}, json.dumps({"build": codebuild._builds[_build_ids[token]]}).encode()
    place = token[:2]
    running_count = list(_running_builds.values()).count(place)
    if running_count >= _behavior.most and data.get("projectName") in codebuild._projects:
        # CodeBuild's own words, as public reports of new accounts have them
        message = f"Cannot have more than {_behavior.most} builds in queue for the account"
        return codebuild.error_response_json("AccountLimitExceededException", message, 400)
    answer = start_plain_build(data)
    if answer[0] >= ERROR_STATUS:
        return answer
    build_id = json.loads(answer[2])["build"]["id"]
    _build_ids[token] = build_id
    _running_builds[build_id] = place
    build = codebuild._builds[build_id]
    project = dict(codebuild._projects[data["projectName"]])
    build.pop("endTime")
    build.update(
        buildStatus="IN_PROGRESS",
        currentPhase="SUBMITTED",
        phases=[],
        logs=_log_location(project, build_id),
    )
    run_in_context = contextvars.copy_context().run  # account and region are the request's
    threading.Thread(
        target=run_in_context, args=[_simulate_build, build, project], daemon=True
    ).start()
    return 200, {}, json.dumps({"build": build}).encode()


def _log_location(project, build_id):
    log_config = project.get("logsConfig", {}).get("cloudWatchLogs", {})
    name, number = build_id.split(":")
    group = log_config.get("groupName", f"/aws/codebuild/{name}")
    stream = f"{log_config['streamName']}/{number}" if log_config.get("streamName") else number
    console_path = f"{group.replace('/', '$252F')}/log-events/{stream.replace('/', '$252F')}"
    link = f"https://console.aws.amazon.com/cloudwatch/home?region={get_region()}#logsV2:log-groups/log-group/{console_path}"
    return {"groupName": group, "streamName": stream, "deepLink": link}


def _simulate_build(build, project):
    """Run the phases until one fails; record each as CodeBuild does."""
    log = _BuildLog(build["logs"])
    status = "SUCCEEDED"
    try:
        time.sleep(_behavior.duration_s)
        source = _run_phase(build, "DOWNLOAD_SOURCE", lambda: _read_source(project))
        buildspec = yaml.safe_load(project["source"]["buildspec"])
        for name, phase in buildspec["phases"].items():
            _run_phase(
                build,
                name.upper(),
                lambda phase=phase: _run_commands(phase["commands"], source, log),
            )
    except BuildCommandError as failure:
        log.write_line(str(failure))
        status = "FAILED"
    except Exception as error:  # noqa: BLE001  # of this stand-in; a build that never ends would tell nobody
        log.write_line(repr(error))
        status = "FAULT"
    _running_builds.pop(build["id"], None)
    build.update(buildStatus=status, currentPhase="COMPLETED", endTime=int(time.time()))


def _run_phase(build, name, action):
    build["currentPhase"] = name
    record = {"phaseType": name, "startTime": int(time.time()), "phaseStatus": "SUCCEEDED"}
    try:
        return action()
    except BuildCommandError as failure:
        context = {"statusCode": "COMMAND_EXECUTION_ERROR", "message": str(failure)}
        record.update(phaseStatus="FAILED", contexts=[context])
        raise
    finally:
        build["phases"].append({**record, "endTime": int(time.time())})


def _read_source(project):
    bucket, _, key = project["source"]["location"].partition("/")
    body = s3._get_object_data(bucket, key)
    if body is None:
        raise BuildCommandError(f"NoSuchKey: s3://{bucket}/{key}")
    return zipfile.ZipFile(io.BytesIO(body))


def _run_commands(commands, source, log):
    for command in commands:
        log.write_line(f"Running command {command}")
        try:
            _run_command(shlex.split(command), source)
        except BuildCommandError as failure:
            log.write_line(str(failure))
            raise BuildCommandError(
                f"Error while executing command: {command}. Reason: {failure}"
            ) from failure


def _run_command(words, source):
    if words[:2] == ["docker", "build"]:
        _build_image(words[2:], source)
    elif words[:2] == ["docker", "push"]:
        _push_image(words[2])
    elif words[:3] != ["aws", "ecr", "get-login-password"]:
        raise BuildCommandError(f"the stand-in for CodeBuild knows no command {words[0]}")


def _build_image(words, source):
    options = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
    arguments = dict(
        word.split("=", 1)
        for word, previous_word in zip(words[1:], words, strict=False)
        if previous_word == "--build-arg"
    )
    host = arguments.get("BASE_IMAGE", "").split("/")[0]
    if host.endswith(".invalid"):
        raise BuildCommandError(
            f"failed to resolve {arguments['BASE_IMAGE']}: lookup {host}: no such host"
        )
    names = source.namelist()
    if options["--file"] not in names:
        raise BuildCommandError(
            f"failed to read dockerfile: open {options['--file']}: no such file"
        )
    for line in source.read(options["--file"]).decode().splitlines():
        line_words = line.split()
        if line_words[:1] == ["COPY"] and not line_words[1].startswith("--from"):
            for word in line_words[1:-1]:
                if not any(name.startswith(word) for name in names):
                    raise BuildCommandError(f'"/{word}": not found')


def _push_image(reference):
    name, _, tag = reference.partition("/")[2].rpartition(":")
    annotations = {"stand-in": "no layers: put here by a played build of the local AWS endpoint"}
    manifest = json.dumps(
        {"schemaVersion": 2, "mediaType": _MANIFEST_TYPE, "layers": [], "annotations": annotations}
    )
    answer = ecr._put_image(
        {
            "repositoryName": name,
            "imageTag": tag,
            "imageManifest": manifest,
            "imageManifestMediaType": _MANIFEST_TYPE,
        }
    )
    if answer[0] >= ERROR_STATUS:
        raise BuildCommandError(json.loads(answer[2])["message"])


class _BuildLog:
    """The build's log stream."""

    def __init__(self, location) -> None:
        self._location = {
            "logGroupName": location["groupName"],
            "logStreamName": location["streamName"],
        }
        require_success(cloudwatch_logs._create_log_stream(self._location))

    def write_line(self, line):
        event = {"timestamp": int(time.time() * 1000), "message": line}
        require_success(cloudwatch_logs._put_log_events({**self._location, "logEvents": [event]}))
