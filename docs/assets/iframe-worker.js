/* Browsers refuse workers to pages that are opened from the file system. There, the search runs
   its worker's script in a hidden frame instead; on a server nothing changes. */
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      const waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.appendChild(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = frame.contentDocument.createElement("script");
      script.src = url;
      script.onload = () => {
        this.send = (data) => inside.dispatchEvent(new inside.MessageEvent("message", { data }));
        waiting.splice(0).forEach(this.send);
      };
      script.onerror = () => this.dispatchEvent(new ErrorEvent("error", { filename: url }));
      this.send = (data) => waiting.push(data);
      frame.contentDocument.body.appendChild(script);
    }
    postMessage(data) {
      setTimeout(() => this.send(data));
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
