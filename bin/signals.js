// What a signal does before a command has listeners of its own. `sallyport.js` loads this file first. Plain JavaScript that Node 18
// can run.
import { constants } from 'node:os'
import { isatty } from 'node:tty'

const ignore = () => {}
const isService = ['server', 'client', 'router'].includes(process.argv[2] ?? '')

// Node would open its debugger, for everybody on this machine and as long as the process lives.
process.on('SIGUSR1', ignore)
// These would end the process. To a service they mean nothing, unless a terminal has closed.
if (isService) process.on('SIGUSR2', ignore)
if (isService && !isatty(0)) process.on('SIGHUP', ignore)
if (process.pid === 1) endBySignals()

/** The kernel delivers a signal to the first process of a container only if it listens for it. Without this, an early one would be lost. */
function endBySignals() {
  for (const signal of /** @type {const} */ (['SIGINT', 'SIGTERM'])) {
    process.on(signal, () => {
      // Code that has started to serve has its own listener, and shuts down gracefully.
      if (process.listenerCount(signal) === 1) process.exit(128 + constants.signals[signal])
    })
  }
}
