// Validate Argo CD and Flux objects by the validators of @kubernetes-models, strictly: a field that the
// validator of a typed object never reads is unknown to its schema. Free-form objects are read by nobody.
// Reads a JSON list from stdin, writes a JSON list of error lists.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const modules = process.argv[2];

function watched(value, path, records) {
  if (value === null || typeof value !== "object") return value;
  const read = new Set();
  const children = new Map();
  if (!Array.isArray(value)) records.push({ path, read, keys: Object.keys(value) });
  return new Proxy(value, {
    get(target, key) {
      if (typeof key !== "string") return target[key];
      read.add(key);
      if (!children.has(key)) children.set(key, watched(target[key], `${path}/${key}`, records));
      return children.get(key);
    },
  });
}

async function errors(body) {
  const [group, version] = body.apiVersion.split("/");
  const library = group === "argoproj.io" ? "argo-cd" : "flux-cd";
  const file = `${modules}/@kubernetes-models/${library}/${group}/${version}/${body.kind}.js`;
  // the class copies what it is given, and so reads everything: ask the validator behind it
  const schema = readFileSync(file, "utf8").match(/from"([^"]+\/_schemas\/[^"]+)"/)[1];
  const { validate } = await import(new URL(schema, pathToFileURL(file)));
  const records = [];
  const found = validate(watched(body, "", records))
    ? []
    : validate.errors.map(({ instancePath, keyword, params }) => `${instancePath}: ${keyword} ${JSON.stringify(params)}`);
  const unknown = records
    .filter(({ read }) => read.size > 0)
    .flatMap(({ path, read, keys }) => keys.filter((key) => !read.has(key)).map((key) => `${path}/${key} is unknown`));
  return [...found, ...unknown];
}

const bodies = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(await Promise.all(bodies.map(errors))));
