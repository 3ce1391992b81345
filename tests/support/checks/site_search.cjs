// The site's own search without a browser: its worker, its index, and search.js in front of it.
// node site_search.cjs SITE < a JSON list of questions > question → locations, best page first
const fs = require("fs"), path = require("path"), vm = require("vm");
const site = process.argv[2], workers = path.join(site, "assets/javascripts/workers");
const read = (...parts) => fs.readFileSync(path.join(...parts), "utf8");
let handle, answered;
const worker = vm.createContext({
  console: { warn() {} },
  addEventListener: (_, handler) => { handle = handler; },
  postMessage: (message) => answered(message),
});
vm.runInContext("var self = globalThis;", worker);
vm.runInContext(read(workers, fs.readdirSync(workers).find((name) => /^search\..*\.js$/.test(name))), worker);
class Worker {}
Worker.prototype.postMessage = (message) => handle({ data: message });
vm.runInNewContext(read(site, "search.js"), { Worker });
const ask = (message) => new Promise((resolve) => { answered = resolve; new Worker().postMessage(message); });

(async () => {
  const index = JSON.parse(read(site, "search/search_index.json"));
  await ask({ type: 0, data: { ...index, options: { suggest: false } } });
  const found = {};
  for (const question of JSON.parse(fs.readFileSync(0, "utf8"))) {
    const { data } = await ask({ type: 2, data: question });
    found[question] = data.items.map((page) => page.map((section) => section.location));
  }
  process.stdout.write(JSON.stringify(found));
})();
