/** What an idle process holds, according to Node's inspector and its admin listener. */
import { once } from 'node:events'
import { WebSocket } from 'ws'
import type { Running } from '../cli/process.ts'
import { readStatus } from './deployment/status.ts'

export interface Holdings {
  /** Heap and external memory after a collection. */
  readonly liveBytes: number
  /** Everything that keeps the event loop alive: sockets, timers, watchers. */
  readonly handles: number
  readonly sockets: number
  /** Entries of all maps and sets, wherever they are. */
  readonly entries: number
  readonly streams: number
  readonly bufferedBytes: number
}

const READY_MS = 2000

/** `token`: file of the admin token. The process runs with `--inspect`. */
export async function holdingsOf(child: Running, token: string): Promise<Holdings> {
  const [status, inspected] = await Promise.all([readStatus(child, token), inspect(child)])
  return {
    ...inspected,
    streams: sumOf(status, ['streams', 'exchanges', 'live', 'held']),
    bufferedBytes: sumOf(status, ['bufferedBytes', 'replayBytes', 'heldBytes']),
  }
}

/** Whether its own readiness probe passes. */
export async function isReady(child: Running): Promise<boolean> {
  try {
    const signal = AbortSignal.timeout(READY_MS)
    return (await fetch(`http://${await child.address('admin')}/readyz`, { signal })).ok
  } catch {
    return false
  }
}

/** The sum of all numbers with one of these names, at any depth. */
function sumOf(value: unknown, names: readonly string[]): number {
  if (typeof value !== 'object' || value === null) return 0
  let sum = 0
  for (const [name, member] of Object.entries(value)) {
    sum += typeof member === 'number' && names.includes(name) ? member : sumOf(member, names)
  }
  return sum
}

/** Looking up the first name of a system error makes Node build its table of them, 85 entries. Do it here rather than during some fault. */
const MEMORY = `(() => {
  process.getBuiltinModule('node:util').getSystemErrorName(-1)
  const { heapUsed, external } = process.memoryUsage()
  const handles = process.getActiveResourcesInfo()
  const sockets = handles.filter(name => name === 'TCPSocketWrap').length
  return { liveBytes: heapUsed + external, handles: handles.length, sockets }
})()`
/** The prototype of a subclass counts as an object of the class, but has no size. */
const SIZES = `function () {
  const sizeOf = one => { try { return one.size } catch { return 0 } }
  return this.reduce((sum, one) => sum + sizeOf(one), 0)
}`

async function inspect(child: Running): Promise<Pick<Holdings, 'liveBytes' | 'handles' | 'sockets' | 'entries'>> {
  const { msg } = await child.line(line => line.msg.startsWith('Debugger listening on '))
  const inspector = await Inspector.connect(msg.split(' ').at(-1)!)
  try {
    // What finalizers release is collected by the next round.
    for (let round = 0; round < 3; round++) await inspector.call('HeapProfiler.collectGarbage')
    const memory = await inspector.evaluate(MEMORY)
    const entries = (await inspector.sizes('Map')) + (await inspector.sizes('Set'))
    return { ...(memory as { liveBytes: number; handles: number; sockets: number }), entries }
  } finally {
    inspector.close()
  }
}

interface Remote {
  readonly result: { readonly objectId?: string; readonly value?: unknown }
  readonly objects: { readonly objectId: string }
}

interface Answer {
  readonly id: number
  readonly result: Remote
  readonly error?: { readonly message: string }
}

/** The few calls of the Chrome DevTools protocol that are needed here. */
class Inspector {
  readonly #ws: WebSocket
  readonly #waiting = new Map<number, PromiseWithResolvers<Remote>>()
  #calls = 0

  private constructor(ws: WebSocket) {
    this.#ws = ws
    ws.on('message', data => this.#answered(JSON.parse(String(data))))
    ws.on('close', () => {
      for (const { reject } of this.#waiting.values()) reject(new Error('the process has gone'))
    })
  }

  static async connect(url: string): Promise<Inspector> {
    const ws = new WebSocket(url, { perMessageDeflate: false, maxPayload: 64 * 1024 * 1024 })
    await once(ws, 'open')
    return new Inspector(ws)
  }

  call(method: string, params: object = {}): Promise<Remote> {
    const waiting = Promise.withResolvers<Remote>()
    this.#waiting.set(++this.#calls, waiting)
    this.#ws.send(JSON.stringify({ id: this.#calls, method, params }))
    return waiting.promise
  }

  #answered({ id, result, error }: Answer): void {
    const waiting = this.#waiting.get(id)
    this.#waiting.delete(id)
    if (error === undefined) waiting?.resolve(result)
    else waiting?.reject(new Error(error.message))
  }

  async evaluate(expression: string): Promise<unknown> {
    return (await this.call('Runtime.evaluate', { expression, returnByValue: true })).result.value
  }

  /** The total size of all live objects of a class. */
  async sizes(name: 'Map' | 'Set'): Promise<number> {
    const prototype = await this.call('Runtime.evaluate', { expression: `${name}.prototype` })
    const { objects } = await this.call('Runtime.queryObjects', { prototypeObjectId: prototype.result.objectId })
    const params = { objectId: objects.objectId, functionDeclaration: SIZES, returnByValue: true }
    const sum = (await this.call('Runtime.callFunctionOn', params)).result.value
    await this.call('Runtime.releaseObject', { objectId: objects.objectId })
    return Number(sum)
  }

  close(): void {
    this.#ws.close()
  }
}
