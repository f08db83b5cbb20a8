/** Argo Events' own handlers as a process that can be killed, behind TCP ports that stay. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { type AddressInfo, connect, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { goBuild } from './go.ts'

/** How long an event takes on its way to the bus. */
const BUS = '5ms'

interface RecordedEvent {
  readonly id: string
  /** By the inbox; 0: not of it. */
  readonly attempt: number
}

export class EventSources {
  /** Of all its processes, with the `id` of each body. */
  readonly events: RecordedEvent[] = []
  readonly #folder: string
  readonly #proxies: Server[] = []
  #child: ChildProcess | undefined

  /** Needs Go and network namespaces. `secret`: of all kinds. */
  static async build(secret: string): Promise<EventSources> {
    const folder = mkdtempSync(join(tmpdir(), 'sallyport-sources-'))
    // Without cgo it runs in an empty root.
    const source = resolve(import.meta.dirname, '../interop/argo-events')
    await goBuild(source, join(folder, 'argo-events'), '.', { CGO_ENABLED: '0' })
    const secrets = join(folder, 'root/argo-events/secrets/hook')
    mkdirSync(secrets, { recursive: true })
    writeFileSync(join(secrets, 'secret'), secret)
    return new EventSources(folder)
  }

  private constructor(folder: string) {
    this.#folder = folder
  }

  #socket(kind: string): string {
    return join(this.#folder, 'root', `${kind}.sock`)
  }

  /** Resolves when all kinds listen; they may refuse for a moment yet. */
  async start(): Promise<void> {
    for (const kind of ['webhook', 'github', 'gitlab', 'bitbucketserver']) rmSync(this.#socket(kind), { force: true })
    const command = ['--net', join(this.#folder, 'argo-events'), join(this.#folder, 'root'), BUS]
    this.#child = spawn('unshare', command, { stdio: ['ignore', 'pipe', 'ignore'] })
    await new Promise<void>(ready => {
      createInterface(this.#child!.stdout!).on('line', line => {
        const [kind, event] = line.split('\t', 2)
        if (kind === 'ready') ready()
        // All else is its log.
        else if (event !== undefined) this.events.push(read(event))
      })
    })
  }

  /** Where a kind is reached, also while it is not there. */
  async port(kind: string): Promise<number> {
    const proxy = createServer(socket => {
      const inner = connect(this.#socket(kind))
      socket.on('error', () => inner.destroy()).pipe(inner)
      inner.on('error', () => socket.destroy()).pipe(socket)
    })
    this.#proxies.push(proxy)
    proxy.listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    return (proxy.address() as AddressInfo).port
  }

  /** Kills it. What it had said is in `events`. */
  async end(): Promise<void> {
    const child = this.#child!
    child.kill('SIGKILL')
    await once(child, 'close')
  }

  remove(): void {
    for (const proxy of this.#proxies) proxy.close()
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

interface EventText {
  readonly headers: Record<string, string[]>
  readonly body: { readonly id: string }
}

function read(text: string): RecordedEvent {
  const { headers, body } = JSON.parse(text) as EventText
  return { id: body.id, attempt: Number(headers['Sallyport-Inbox-Attempt']?.[0] ?? 0) }
}
