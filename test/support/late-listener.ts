/** A listener of 127.0.0.1 whose queue is full: the kernel drops the first packet of whoever connects, as a bad path does. */
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { Worker } from 'node:worker_threads'

const SLEEPS = `
  const { workerData, parentPort } = require('node:worker_threads')
  const server = require('node:net').createServer(socket => socket.on('error', () => {}))
  server.listen({ host: '127.0.0.1', port: 0, backlog: 1 }, () => {
    parentPort.postMessage(server.address().port)
    Atomics.wait(workerData, 0, 0)
  })`

export class LateListener {
  readonly port: number
  readonly #worker: Worker
  readonly #gate: Int32Array
  readonly #queue: Socket[]

  private constructor(port: number, worker: Worker, gate: Int32Array, queue: Socket[]) {
    this.port = port
    this.#worker = worker
    this.#gate = gate
    this.#queue = queue
  }

  static async start(): Promise<LateListener> {
    const gate = new Int32Array(new SharedArrayBuffer(4))
    const worker = new Worker(SLEEPS, { eval: true, workerData: gate })
    const [port] = (await once(worker, 'message')) as [number]
    const queue = Array.from({ length: 4 }, () => connect(port, '127.0.0.1').on('error', () => {}))
    await once(queue[0]!, 'connect')
    return new LateListener(port, worker, gate, queue)
  }

  /** From now on, whoever knocks again is let in. */
  accept(): void {
    Atomics.store(this.#gate, 0, 1)
    Atomics.notify(this.#gate, 0)
  }

  async stop(): Promise<void> {
    this.accept()
    for (const socket of this.#queue) socket.destroy()
    await this.#worker.terminate()
  }
}
