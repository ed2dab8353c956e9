// Reads a JSON list of Kubernetes objects on standard input and checks each against the schema of its kind, of npm's
// kubernetes-models and @kubernetes-models/prometheus-operator below the directory that is named. Says what is wrong.
import {createRequire} from "node:module";
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";
import {join} from "node:path";

const modules = process.argv[2];
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const [group, version] = object.apiVersion.includes("/") ? object.apiVersion.split("/") : ["", object.apiVersion];
  const pkg = group === "monitoring.coreos.com" ? "@kubernetes-models/prometheus-operator" : "kubernetes-models";
  const require = createRequire(join(modules, "x.js"));
  let path = join(modules, pkg, group, version, object.kind + ".js");
  let kinds;
  try {
    kinds = await import(pathToFileURL(path));
  } catch (error) {
    if (error.code !== "ERR_MODULE_NOT_FOUND") throw error;
    kinds = require(path);
  }
  try {
    new kinds[object.kind](object).validate();
    console.log(`${object.kind} ${object.metadata.name}: valid`);
  } catch (error) {
    console.log(`${object.kind} ${object.metadata.name}: ${error.message}`);
    process.exitCode = 1;
  }
}
