"use strict";
// What both pages share: a button that copies a command.

function copyButton(text) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy"; // the clipboard is closed to pages without TLS, but for this machine's own
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return button;
}
