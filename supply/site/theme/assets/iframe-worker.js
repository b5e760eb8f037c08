// The search of a site that is opened from the disk. The theme runs its search in a worker, and a
// browser starts no worker for a page of file://. There the worker's program runs in a hidden frame,
// and messages pass between page and frame. A page from a server keeps the browser's own worker.
//
// The offline plugin adds such a script from unpkg.com, unless one of the site's own scripts has
// "iframe-worker" in its name.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const program = document.createElement("script")
      program.src = new URL(url, document.baseURI).href

      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      this.frame.srcdoc = program.outerHTML
      this.loaded = new Promise((resolve) => this.frame.addEventListener("load", resolve))
      this.loaded.then(() => {
        this.frame.contentWindow.postMessage = (data) => send(this, data)
      })
      document.body.append(this.frame)
    }

    postMessage(data) {
      this.loaded.then(() => send(this.frame.contentWindow, data))
    }

    terminate() {
      this.frame.remove()
    }
  }

  function send(target, data) {
    target.dispatchEvent(new MessageEvent("message", { data }))
  }
}
