// Ceres Ext. Copyright 2026 The Ceres Ext Authors. BSD-3-Clause, see LICENSE.
// Browsers start no workers for pages on the disk. The search's worker then
// runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = frame.contentDocument.createElement("script");
      script.src = new URL(url, location.href).href;
      this.ready = new Promise((done) => (script.onload = done));
      frame.contentDocument.body.append(script);
    }
    postMessage(data) {
      this.ready.then(() =>
        this.inside.dispatchEvent(
          new this.inside.MessageEvent("message", { data })));
    }
  };
}
