"use strict";
// Renders this server's OpenAPI document. Every text is set as text, never as markup.

const methods = ["get", "post", "put", "patch", "delete"];
const jsonType = "application/json";
let schemas = {};

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
  if (schema === true || !schema) return "any";
  if (schema.oneOf) return schema.oneOf.map(typeText).join(" or ");
  const name = refName(schema);
  if (name) return name;
  const types = [].concat(schema.type || []).filter((t) => t !== "null");
  let text = types.join(" or ") || "any";
  if (types[0] === "array") text = schema.items ? "list of " + typeText(schema.items) : "list";
  if (schema.enum) text = schema.enum.filter((v) => v !== null).join(" | ");
  if (schema.format) text += " (" + schema.format + ")";
  return [].concat(schema.type || []).includes("null") ? text + ", or null" : text;
}

function schemaLink(schema) {
  const name = refName(schema);
  return name ? el("a", { href: "#schema-" + name }, name) : typeText(schema);
}

// The forms of a field that may have fields of their own, each with what is written behind the field's name.
function inner(field) {
  const forms = [];
  for (const form of [field, ...(field.oneOf || [])]) {
    if (form.properties) forms.push([form, "."]);
    if (form.items && form.items.properties) forms.push([form.items, "[]."]);
  }
  return forms;
}

// Rows of a schema's fields. must is the word for those that are required.
function rows(schema, must, prefix, depth, out) {
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const required = (schema.required || []).includes(name);
    out.push(el("tr", { class: field["x-hob-not-available"] ? "later" : "" },
      el("td", {}, el("code", {}, prefix + name)),
      el("td", {}, schemaLink(field)),
      el("td", {}, required ? el("strong", {}, must + ". ") : null, field.description || "")));
    if (depth < 2) for (const [form, joint] of inner(field)) rows(form, must, prefix + name + joint, depth + 1, out);
  }
  return out;
}

function table(heads, body) {
  return el("div", { class: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, ...heads.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, ...body)));
}

// Names to fill in stand in capitals, since curl reads braces as its own.
function placeholder(path, name) {
  if (name !== "id") return name.toUpperCase();
  return path.startsWith("/api/tools") ? "TOOL_ID" : "AGENT_ID";
}

function quote(text) {
  return "'" + text.replaceAll("'", "'\\''") + "'";
}

function curl(method, path, op) {
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => placeholder(path, name));
  const stream = JSON.stringify(op.responses).includes("text/event-stream");
  const lines = ["curl -sS" + (stream ? "N " : " ") + (method === "get" ? "" : "-X " + method.toUpperCase() + " ") + quote(location.origin + filled)];
  if (!op.security) lines.push('-H "Authorization: Bearer $HOB_KEY"');
  if (op.requestBody) lines.push("-H 'Content-Type: application/json'", "-d " + quote(JSON.stringify(op.requestBody.content[jsonType].example)));
  return lines.join(" \\\n  ");
}

function commandBox(title, text) {
  return el("div", { class: "command" }, el("div", { class: "bar" }, el("span", {}, title), copyButton(text)),
    el("pre", { tabIndex: 0 }, el("code", {}, text)));
}

function bodyPart(body) {
  const schema = body.content[jsonType].schema;
  const name = refName(schema);
  const heading = el("h4", {}, "Body" + (body.required ? "" : ", may be left out"));
  return [heading, table(["Field", "Type", "Meaning"], rows(schemas[name] || schema, "Required", "", 0, []))];
}

// Rows of a call's answers; the errors, which all have one form, share a row.
function answers(responses) {
  const out = [];
  const errors = [];
  let form = null;
  for (const [status, answer] of Object.entries(responses)) {
    const content = answer.content || {};
    const kind = Object.keys(content)[0];
    if (status >= "400") {
      errors.push(status + " " + answer.description);
      form = content[kind].schema;
      continue;
    }
    out.push(el("tr", {}, el("td", {}, status + " " + answer.description),
      el("td", {}, ...(content[kind] && content[kind].schema
        ? [kind === jsonType ? "" : kind + " of ", schemaLink(content[kind].schema)] : [kind || "nothing"]))));
  }
  if (form) out.push(el("tr", {}, el("td", {}, errors.join(", ")), el("td", {}, schemaLink(form))));
  return out;
}

function route({ method, paths, op }) {
  const path = paths[0];
  const section = el("section", { class: "route", id: op.operationId },
    el("h3", {}, el("span", { class: "method " + method }, method.toUpperCase()), el("code", { class: "path" }, path)),
    el("p", {}, op.summary + "."));
  if (paths.length > 1) section.append(el("p", { class: "note" }, "Also at ", el("code", {}, paths.slice(1).join(", ")), "."));
  if (op.description) section.append(el("p", { class: "note" }, op.description));
  const access = op.security ? "Needs no key." : op["x-hob-scope"] ? "Needs the scope " + op["x-hob-scope"] + "." : "Needs a key.";
  section.append(el("p", { class: "note" }, access));
  const parameters = op.parameters || [];
  if (parameters.length > 0) {
    section.append(el("h4", {}, "Parameters"), table(["Name", "Where", "Type", "Meaning"], parameters.map((p) => el("tr", {},
      el("td", {}, el("code", {}, p.name)), el("td", {}, p.in), el("td", {}, typeText(p.schema)), el("td", {}, p.description || "")))));
  }
  if (op.requestBody) section.append(...bodyPart(op.requestBody));
  section.append(el("h4", {}, "Answers"), table(["Status", "Content"], answers(op.responses)));
  section.append(commandBox("Try it", curl(method, path, op)));
  const fill = parameters.filter((p) => p.in === "path").map((p) => placeholder(path, p.name) + ": " + p.description);
  if (fill.length > 0) section.append(el("p", { class: "note" }, "To fill in. " + fill.join("; ") + "."));
  return section;
}

// The calls of a group. Those that do the same at several paths are one.
function calls(doc, tag) {
  const list = [];
  for (const [path, ops] of Object.entries(doc.paths)) {
    for (const method of methods) {
      const op = ops[method];
      if (!op || !op.tags.includes(tag)) continue;
      const same = list.find((c) => c.method === method && c.op.summary === op.summary);
      if (!same) list.push({ method, paths: [path], op });
      else if (path.length < same.paths[0].length) Object.assign(same, { paths: [path, ...same.paths], op });
      else same.paths.push(path);
    }
  }
  return list;
}

function render(doc) {
  schemas = doc.components.schemas;
  document.getElementById("about").textContent = doc.info.description + " Version " + doc.info.version + ".";
  document.getElementById("base").textContent = location.origin;
  document.getElementById("setup").hidden = false;
  for (const node of document.querySelectorAll("#setup .command")) {
    node.querySelector(".bar").append(copyButton(node.querySelector("code").textContent));
  }
  const main = document.getElementById("routes");
  const toc = document.getElementById("toc");
  for (const tag of doc.tags) {
    const group = el("section", { class: "group" }, el("h2", {}, tag.name), el("p", {}, tag.description + "."));
    const list = el("ul");
    for (const call of calls(doc, tag.name)) {
      group.append(route(call));
      const item = el("li", {}, el("a", { href: "#" + call.op.operationId },
        el("span", { class: "method " + call.method }, call.method.toUpperCase()), el("span", {}, call.op.summary.split(/[;,:]/)[0])));
      item.dataset.search = [call.method, ...call.paths, call.op.summary].join(" ").toLowerCase();
      list.append(item);
    }
    main.append(group);
    toc.append(el("section", {}, el("h2", {}, tag.name), list));
  }
  const all = document.getElementById("schemas");
  all.hidden = false;
  for (const [name, schema] of Object.entries(schemas)) {
    const must = name.endsWith("Input") ? "Required" : "Always there";
    const box = el("details", { class: "schema", id: "schema-" + name }, el("summary", {}, el("code", {}, name)));
    for (const form of schema.oneOf || [schema]) {
      if (form.title) box.append(el("h4", {}, el("code", {}, form.title)), el("p", { class: "note" }, form.description || ""));
      box.append(table(["Field", "Type", "Meaning"], rows(form, must, "", 0, [])));
    }
    all.append(box);
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

// The list of calls stands open where there is room beside the text, and closes behind a choice where there is none.
const menu = document.getElementById("menu");
const wide = window.matchMedia("(min-width: 56.01rem)");
menu.open = wide.matches;
wide.addEventListener("change", () => { menu.open = wide.matches; });
menu.addEventListener("click", (event) => {
  if (event.target.closest("a") && !wide.matches) menu.open = false;
});

document.getElementById("filter").addEventListener("input", (event) => {
  const wanted = event.target.value.trim().toLowerCase();
  for (const group of document.querySelectorAll("#toc section")) {
    let shown = 0;
    for (const item of group.querySelectorAll("li")) {
      item.hidden = !item.dataset.search.includes(wanted);
      if (!item.hidden) shown++;
    }
    group.hidden = shown === 0;
  }
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
