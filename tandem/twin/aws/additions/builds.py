# ruff: noqa: SLF001, ANN001, ANN202 - MiniStack is untyped and has no public interface
"""CodeBuild projects with all that their template says, and builds that are played.

A played build takes the real source from its bucket and the project's own commands one by one, and refuses what it
does not know. No container runs and nothing is downloaded: `docker build` looks for what the Dockerfile copies, a base
at a host below `.invalid` cannot be pulled, and `docker push` puts a manifest without layers into ECR.
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
from ministack.core.responses import get_account_id, get_region
from ministack.services import cloudwatch_logs, codebuild, ecr, s3

from .handlers import REFUSED, succeeded

NEEDS = {
    codebuild: ("_builds", "_project_shape", "_projects", "_start_build"),
    cloudwatch_logs: ("_create_log_stream", "_put_log_events"),
    ecr: ("_put_image",),
    s3: ("_get_object_data",),
}
# property -> member of the API; what MiniStack's project does not keep
_KEPT = {"LogsConfig": "logsConfig", "QueuedTimeoutInMinutes": "queuedTimeoutInMinutes", "VpcConfig": "vpcConfig"}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_by_token: dict = {}


class CommandError(Exception):
    """A command of the build failed; the words are what it printed."""


def install(handlers: dict) -> None:
    """Wrap the project's handlers and StartBuild."""
    project = handlers["AWS::CodeBuild::Project"]
    create, update, shape = project["create"], project["update"], codebuild._project_shape

    def created(logical_id, properties, stack):
        name, attributes = create(logical_id, properties, stack)
        return _kept(name, properties), attributes

    def updated(physical_id, old, new, stack):
        name, attributes = update(physical_id, old, new, stack)
        return _kept(name, new), attributes

    project.update(create=created, update=updated)
    codebuild._project_shape = lambda found: {
        **shape(found), **{member: found[member] for member in _KEPT.values() if member in found}
    }  # fmt: skip
    start = codebuild._start_build
    codebuild._start_build = lambda data: _started(start, data)


def _kept(name, properties):
    for property_, member in _KEPT.items():
        if property_ in properties:
            codebuild._projects[name][member] = _spelt(properties[property_])
    return name


def _spelt(value):
    if isinstance(value, dict):
        return {key[:1].lower() + key[1:]: _spelt(item) for key, item in value.items()}
    return int(value) if str(value).isdigit() else value


def _started(start, data):
    """A build in progress; the same token gives the same build, as CodeBuild does for a while."""
    token = (get_account_id(), get_region(), data.get("idempotencyToken"))
    if token[2] and _by_token.get(token) in codebuild._builds:
        return 200, {}, json.dumps({"build": codebuild._builds[_by_token[token]]}).encode()
    answer = start(data)
    if answer[0] >= REFUSED:
        return answer
    identity = json.loads(answer[2])["build"]["id"]
    _by_token[token] = identity
    build, project = codebuild._builds[identity], dict(codebuild._projects[data["projectName"]])
    build.pop("endTime")
    build.update(buildStatus="IN_PROGRESS", currentPhase="SUBMITTED", phases=[], logs=_log_of(project, identity))
    run = contextvars.copy_context().run  # account and region are the request's
    threading.Thread(target=run, args=[_play, build, project], daemon=True).start()
    return 200, {}, json.dumps({"build": build}).encode()


def _log_of(project, identity):
    said = project.get("logsConfig", {}).get("cloudWatchLogs", {})
    name, number = identity.split(":")
    group = said.get("groupName", f"/aws/codebuild/{name}")
    stream = f"{said['streamName']}/{number}" if said.get("streamName") else number
    place = f"{group.replace('/', '$252F')}/log-events/{stream.replace('/', '$252F')}"
    link = f"https://console.aws.amazon.com/cloudwatch/home?region={get_region()}#logsV2:log-groups/log-group/{place}"
    return {"groupName": group, "streamName": stream, "deepLink": link}


def _play(build, project):
    """Take the phases until one fails; the record tells of each as CodeBuild's would."""
    log, status = _Log(build["logs"]), "SUCCEEDED"
    try:
        source = _phase(build, "DOWNLOAD_SOURCE", lambda: _source(project))
        spec = yaml.safe_load(project["source"]["buildspec"])
        for name, phase in spec["phases"].items():
            _phase(build, name.upper(), lambda phase=phase: _commands(phase["commands"], source, log))
    except CommandError as failure:
        log.say(str(failure))
        status = "FAILED"
    except Exception as fault:  # noqa: BLE001  # of this stand-in; a build that never ends would tell nobody
        log.say(repr(fault))
        status = "FAULT"
    build.update(buildStatus=status, currentPhase="COMPLETED", endTime=int(time.time()))


def _phase(build, name, act):
    build["currentPhase"] = name
    record = {"phaseType": name, "startTime": int(time.time()), "phaseStatus": "SUCCEEDED"}
    try:
        return act()
    except CommandError as failure:
        context = {"statusCode": "COMMAND_EXECUTION_ERROR", "message": str(failure)}
        record.update(phaseStatus="FAILED", contexts=[context])
        raise
    finally:
        build["phases"].append({**record, "endTime": int(time.time())})


def _source(project):
    bucket, _, key = project["source"]["location"].partition("/")
    body = s3._get_object_data(bucket, key)
    if body is None:
        raise CommandError(f"NoSuchKey: s3://{bucket}/{key}")
    return zipfile.ZipFile(io.BytesIO(body))


def _commands(commands, source, log):
    for command in commands:
        log.say(f"Running command {command}")
        try:
            _command(shlex.split(command), source)
        except CommandError as failure:
            log.say(str(failure))
            raise CommandError(f"Error while executing command: {command}. Reason: {failure}") from failure


def _command(words, source):
    if words[:2] == ["docker", "build"]:
        _build(words[2:], source)
    elif words[:2] == ["docker", "push"]:
        _push(words[2])
    elif words[:3] != ["aws", "ecr", "get-login-password"]:
        raise CommandError(f"the stand-in for CodeBuild knows no command {words[0]}")


def _build(words, source):
    options = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
    arguments = dict(word.split("=", 1) for word, before in zip(words[1:], words, strict=False)
                     if before == "--build-arg")  # fmt: skip
    host = arguments.get("BASE_IMAGE", "").split("/")[0]
    if host.endswith(".invalid"):
        raise CommandError(f"failed to resolve {arguments['BASE_IMAGE']}: lookup {host}: no such host")
    names = source.namelist()
    if options["--file"] not in names:
        raise CommandError(f"failed to read dockerfile: open {options['--file']}: no such file")
    for line in source.read(options["--file"]).decode().splitlines():
        words_ = line.split()
        if words_[:1] == ["COPY"] and not words_[1].startswith("--from"):
            absent = [word for word in words_[1:-1] if not any(name.startswith(word) for name in names)]
            if absent:
                raise CommandError(f'"/{absent[0]}": not found')


def _push(reference):
    name, _, tag = reference.partition("/")[2].rpartition(":")
    said = {"stand-in": "no layers: put here by a played build of the local AWS endpoint"}
    manifest = json.dumps({"schemaVersion": 2, "mediaType": _MANIFEST, "layers": [], "annotations": said})
    answer = ecr._put_image({"repositoryName": name, "imageTag": tag, "imageManifest": manifest,
                             "imageManifestMediaType": _MANIFEST})  # fmt: skip
    if answer[0] >= REFUSED:
        raise CommandError(json.loads(answer[2])["message"])


class _Log:
    """The build's log stream."""

    def __init__(self, place) -> None:
        self._place = {"logGroupName": place["groupName"], "logStreamName": place["streamName"]}
        succeeded(cloudwatch_logs._create_log_stream(self._place))

    def say(self, line):
        event = {"timestamp": int(time.time() * 1000), "message": line}
        succeeded(cloudwatch_logs._put_log_events({**self._place, "logEvents": [event]}))
