"use strict";
// Renders this server's OpenAPI document. Every text is set as text, never as markup.

const methods = ["get", "post", "put", "patch", "delete"];

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key === "class") node.className = value;
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  for (const child of children) if (child !== null && child !== undefined) node.append(child);
  return node;
}

function refName(schema) {
  return schema && schema.$ref ? schema.$ref.split("/").pop() : "";
}

function typeText(schema) {
  if (schema === true || !schema || Object.keys(schema).length === 0) return "any";
  const name = refName(schema);
  if (name) return name;
  const types = [].concat(schema.type || []).filter((t) => t !== "null");
  let text = types.join(" or ") || "any";
  if (types[0] === "array") text = "list of " + typeText(schema.items);
  if (schema.enum) text = schema.enum.join(" | ");
  if (schema.format) text += " (" + schema.format + ")";
  return [].concat(schema.type || []).includes("null") ? text + ", or null" : text;
}

function schemaLink(schema) {
  const name = refName(schema);
  return name ? el("a", { href: "#schema-" + name }, name) : typeText(schema);
}

function rows(schema, prefix, depth, out) {
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const required = (schema.required || []).includes(name);
    out.push(el("tr", {},
      el("td", {}, el("code", {}, prefix + name)),
      el("td", {}, schemaLink(field)),
      el("td", {}, (required ? "always. " : "") + (field.description || ""))));
    if (depth < 2) {
      if (field.properties) rows(field, prefix + name + ".", depth + 1, out);
      if (field.items && field.items.properties) rows(field.items, prefix + name + "[].", depth + 1, out);
    }
  }
  return out;
}

function table(heads, body) {
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, ...body)));
}

const samples = {
  message: "Hello!", name: "helper", model: "scripted/demo", tool_name: "current_time", approved: true, description: "Tells the weather",
  type: "http", input_schema: { type: "object", properties: { city: { type: "string" } } }, config: { endpoint: "https://api.example.com/weather" },
  config_override: {}, scopes: ["read", "run"], system_prompt: "Be brief.",
};
const sampleFields = {
  RunInput: ["message"], AgentInput: ["name", "system_prompt"], AssignmentInput: ["tool_name"], OverrideInput: ["config_override"],
  ToolInput: ["name", "description", "type", "input_schema", "config"], ApproveInput: ["approved"], KeyInput: ["name", "scopes"], SessionInput: [],
};

// Names to fill in stand in capitals, since curl reads braces as its own.
function fillIn(path) {
  const owner = path.startsWith("/api/tools") ? "TOOL_ID" : "AGENT_ID";
  return path.replace("{id}", owner).replace(/\{(\w+)\}/g, (_, name) => name.toUpperCase());
}

function curl(method, path, op) {
  const lines = ["curl " + (method === "get" ? "" : "-X " + method.toUpperCase() + " ") + quote(location.origin + fillIn(path))];
  if (JSON.stringify(op.responses).includes("text/event-stream")) lines[0] = lines[0].replace("curl ", "curl -N ");
  if (!op.security) lines.push('-H "Authorization: Bearer $HOB_KEY"');
  if (op.requestBody) {
    const name = refName(op.requestBody.content["application/json"].schema);
    const body = {};
    for (const field of sampleFields[name] || []) body[field] = samples[field];
    lines.push("-H 'Content-Type: application/json'", "-d " + quote(JSON.stringify(body)));
  }
  return lines.join(" \\\n  ");
}

function quote(text) {
  return "'" + text.replaceAll("'", "'\\''") + "'";
}

function copyButton(text) {
  const button = el("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}

function route(method, path, op) {
  const section = el("section", { class: "route", id: op.operationId },
    el("h3", {}, el("span", { class: "method " + method }, method.toUpperCase()), el("code", { class: "path" }, path)),
    el("p", {}, op.summary + "."));
  if (op.description) section.append(el("p", { class: "note" }, op.description));
  const access = op.security ? "Needs no key." : op["x-hob-scope"] ? "Needs the scope " + op["x-hob-scope"] + "." : "Needs a key.";
  section.append(el("p", { class: "note" }, access));
  if (op.parameters) {
    section.append(el("h4", {}, "Parameters"), table(["Name", "Where", "Type", "Meaning"], op.parameters.map((p) => el("tr", {},
      el("td", {}, el("code", {}, p.name)), el("td", {}, p.in), el("td", {}, p.schema.type), el("td", {}, p.description || "")))));
  }
  if (op.requestBody) {
    section.append(el("h4", {}, "Body"), el("p", {}, schemaLink(op.requestBody.content["application/json"].schema)));
  }
  section.append(el("h4", {}, "Answers"), table(["Status", "Content"], Object.entries(op.responses).map(([status, answer]) => {
    const content = answer.content || {};
    const kind = Object.keys(content)[0];
    return el("tr", {}, el("td", {}, el("code", {}, status), " " + answer.description),
      el("td", {}, kind === "application/json" ? schemaLink(content[kind].schema) : kind || "nothing"));
  })));
  const command = curl(method, path, op);
  section.append(el("h4", {}, "Try it"), el("div", { class: "curl" }, el("pre", { tabIndex: 0 }, el("code", {}, command)), copyButton(command)));
  return section;
}

function render(doc) {
  document.getElementById("about").textContent = doc.info.description + " Version " + doc.info.version + ".";
  document.getElementById("base").textContent = location.origin;
  document.getElementById("setup").hidden = false;
  const main = document.getElementById("routes");
  const toc = document.getElementById("toc");
  for (const tag of doc.tags) {
    const group = el("section", { class: "group" }, el("h2", {}, tag.name), el("p", {}, tag.description + "."));
    const list = el("ul");
    for (const [path, ops] of Object.entries(doc.paths)) {
      for (const method of methods) {
        const op = ops[method];
        if (!op || !op.tags.includes(tag.name)) continue;
        group.append(route(method, path, op));
        const item = el("li", {}, el("a", { href: "#" + op.operationId }, op.summary));
        item.dataset.search = (method + " " + path + " " + op.summary).toLowerCase();
        list.append(item);
      }
    }
    main.append(group);
    toc.append(el("h2", {}, tag.name), list);
  }
  const schemas = document.getElementById("schemas");
  schemas.hidden = false;
  for (const [name, schema] of Object.entries(doc.components.schemas)) {
    schemas.append(el("details", { class: "schema", id: "schema-" + name }, el("summary", {}, el("code", {}, name)),
      table(["Field", "Type", "Meaning"], rows(schema, "", 0, []))));
  }
  openTarget();
}

// A link to a schema opens it.
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (target.tagName === "DETAILS") target.open = true;
  target.scrollIntoView();
}

document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const item of document.querySelectorAll("#toc li")) item.hidden = !item.dataset.search.includes(wanted);
});
window.addEventListener("hashchange", openTarget);

fetch("/api/openapi.json")
  .then((answer) => {
    if (!answer.ok) throw new Error("the server answered " + answer.status);
    return answer.json();
  })
  .then(render)
  .catch((err) => {
    document.getElementById("about").textContent = "The description of this API could not be loaded: " + err.message + ".";
  });
