// The search of a site that is opened from the disk. The theme runs its search in a worker, and a browser starts no
// worker for a page of file://. There the worker's program runs in a hidden frame, and messages pass between page and
// frame. A page that a server sends keeps the browser's own worker.
//
// The offline plugin adds such a script from unpkg.com, unless a script of the site has "iframe-worker" in its name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      const program = document.createElement("script")
      program.src = new URL(url, document.baseURI).href
      this.frame.srcdoc = program.outerHTML
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve, { once: true }))
      this.loaded.then(() => {
        this.frame.contentWindow.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      })
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
