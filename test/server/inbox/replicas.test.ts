/**
 * Two servers with one inbox in PostgreSQL under load, while one is killed, stopped for longer than its lease, and
 * PostgreSQL is killed or hangs: nothing that was answered 202 is lost, each lane keeps its order, and one webhook of a
 * lane is tried at a time.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createServer, request, type Server } from 'node:http'
import { resolve } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { unhurried } from '../../support/busy.ts'
import { long, needs } from '../../support/needs.ts'
import { Postgres } from '../../support/postgres.ts'
import { until } from '../../support/until.ts'

const PROGRAM = resolve(import.meta.dirname, 'replica.ts')
const LANES = 6
const BACKLOG = 10
const ROUNDS = long ? 20 : 2

interface Attempt {
  readonly lane: string
  readonly body: string
  readonly taken: boolean
  /** Whether it came out of the inbox. */
  readonly stored: boolean
}

/** What reached the receiver, and where two webhooks of a lane did at once. */
class Receiver {
  readonly attempts: Attempt[] = []
  readonly overlaps: string[] = []
  /** Its answer. */
  status = () => 200
  readonly #busy = new Map<string, string>()

  taken(lane: string): number {
    return new Set(this.attempts.filter(one => one.lane === lane && one.taken).map(({ body }) => body)).size
  }

  readonly server: Server = createServer((asked, answer) => {
    const lane = asked.url!
    let body = ''
    asked.on('data', chunk => {
      body += chunk
    })
    asked.on('end', () => {
      const other = this.#busy.get(lane)
      if (other !== undefined) this.overlaps.push(`${lane}: ${body} while ${other}`)
      this.#busy.set(lane, body)
      const over = () => {
        if (this.#busy.get(lane) === body) this.#busy.delete(lane)
      }
      answer.once('close', over)
      setTimeout(() => {
        const status = this.status()
        const stored = asked.headers['sallyport-inbox-id'] !== undefined
        this.attempts.push({ lane, body, taken: status === 200, stored })
        over()
        answer.writeHead(status).end()
      }, 20 * Math.random())
    })
  })
}

class Replica {
  port = 0
  #child: ChildProcess | undefined
  readonly #args: readonly string[]

  constructor(args: readonly string[]) {
    this.#args = args
  }

  async start(): Promise<void> {
    const child = spawn(process.execPath, [PROGRAM, ...this.#args], { stdio: ['ignore', 'pipe', 'inherit'] })
    this.#child = child
    const [said] = (await once(child.stdout!, 'data')) as [Buffer]
    this.port = Number(said.toString())
  }

  async end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill(signal)
    await gone
  }

  signal(signal: NodeJS.Signals): void {
    this.#child?.kill(signal)
  }

  /** The status; 0 if there was none. */
  post(lane: string, body: string): Promise<number> {
    return new Promise(resolve => {
      const headers = { 'idempotency-key': body, 'content-length': body.length }
      const options = {
        port: this.port,
        host: '127.0.0.1',
        path: lane,
        method: 'POST',
        headers,
        agent: false,
        timeout: unhurried(4000),
      }
      const asked = request(options, answer => {
        answer.resume().on('end', () => resolve(answer.statusCode!))
        answer.on('error', () => resolve(0))
      })
      asked.on('timeout', () => asked.destroy())
      asked.on('error', () => resolve(0))
      asked.end(body)
    })
  }
}

describe.runIf(needs('postgres'))('two servers', () => {
  let postgres: Postgres
  let receiver: Receiver
  let replicas: Replica[]

  beforeEach(async () => {
    postgres = await Postgres.start()
    receiver = new Receiver()
    receiver.server.listen(0, '127.0.0.1')
    await once(receiver.server, 'listening')
  })
  afterEach(async () => {
    for (const replica of replicas) await replica.end('SIGKILL')
    receiver.server.closeAllConnections()
    receiver.server.close()
    await postgres.stop()
  })

  const start = async (mode: string) => {
    const { port } = receiver.server.address() as { port: number }
    replicas = [1, 2].map(() => new Replica([postgres.url, `http://127.0.0.1:${port}`, mode]))
    for (const replica of replicas) await replica.start()
  }

  /**
   * Senders, one per lane, each of which sends the next webhook when the previous one was accepted; resolves to what
   * was accepted, in order.
   */
  const send = (over: () => boolean) =>
    Promise.all(
      Array.from({ length: LANES }, async (_, lane) => {
        const told: string[] = []
        for (let i = 0; !over(); i++) {
          const body = `${lane}-${i}`
          // Some wait in each lane all the time, and their number does not grow forever.
          await until(() => i - receiver.taken(`/${lane}`) < BACKLOG)
          for (let tries = 0; ; tries++) {
            const status = await replicas[(i + tries) % 2]!.post(`/${lane}`, body)
            if (status === 200 || status === 202) break
            await new Promise(done => setTimeout(done, 20))
          }
          told.push(body)
        }
        return told
      }),
    )

  const settled = async () => {
    const [row] = await postgres.query(
      "SELECT count(*) FROM sallyport_inbox.messages WHERE state = 'waiting'",
      'sallyport',
    )
    return row!.count === '0'
  }

  /** `most`: by how many places one may be early. */
  const check = (told: string[][], most = 0) => {
    const taken = receiver.attempts.filter(({ taken: was }) => was).map(({ body }) => body)
    const firsts = new Set(taken)
    expect(receiver.attempts.filter(({ stored }) => stored).length).toBeGreaterThan(50)
    expect(told.flat().filter(body => !firsts.has(body))).toEqual([])
    for (const [lane, bodies] of told.entries()) {
      const came = [...firsts].filter(body => body.startsWith(`${lane}-`))
      const places = came.filter(body => bodies.includes(body)).map((body, i) => i - bodies.indexOf(body))
      expect(places.filter(place => place < -most)).toEqual([])
    }
    const report = { told: told.flat().length, arrived: taken.length, twice: taken.length - firsts.size }
    if (long) console.log(JSON.stringify(report))
    return report
  }

  const FAULTS: [string, () => Promise<void>][] = [
    [
      'one is killed',
      async () => {
        await replicas[0]!.end('SIGKILL')
        await quiet(300)
        await replicas[0]!.start()
      },
    ],
    [
      'one stops in good order',
      async () => {
        await replicas[1]!.end('SIGTERM')
        await replicas[1]!.start()
      },
    ],
    [
      'PostgreSQL is killed',
      async () => {
        await postgres.kill()
        await quiet(300)
        await postgres.start()
      },
    ],
    [
      'PostgreSQL answers nothing',
      async () => {
        postgres.pause()
        await quiet(2500)
        postgres.resume()
      },
    ],
  ]
  const quiet = (ms: number) => new Promise(done => setTimeout(done, ms))

  test.each(FAULTS)('%s: nothing is lost, in order, one at a time', { tags: ['slow'] }, async (_what, fault) => {
    await start('always')
    let over = false
    const sending = send(() => over)
    for (let round = 0; round < ROUNDS; round++) {
      const before = receiver.attempts.length
      await until(() => receiver.attempts.length > before + 30)
      await fault()
    }
    const before = receiver.attempts.length
    await until(() => receiver.attempts.length > before + 30)
    over = true
    const told = await sending
    await until(settled)
    check(told)
    expect(receiver.overlaps).toEqual([])
  })

  test('the receiver fails: what both stored arrives in order', {
    tags: ['slow'],
  }, async () => {
    await start('fallback')
    receiver.status = () => 503
    let over = false
    const sending = send(() => over)
    await until(() => receiver.attempts.length > 2 * LANES)
    receiver.status = () => 200
    const before = receiver.attempts.length
    await until(() => receiver.attempts.length > before + 100)
    over = true
    const told = await sending
    await until(settled)
    // A server hears a moment later of what another one stored, and lets the next one pass until then.
    check(told, 2)
  })

  test('one is stopped for longer than its lease and comes back: the other goes on, and nothing is lost', {
    tags: ['slow'],
  }, async () => {
    await start('always')
    let over = false
    const sending = send(() => over)
    await until(() => receiver.attempts.length > 30)
    replicas[0]!.signal('SIGSTOP')
    const before = receiver.attempts.length
    // Its lease must end first.
    await until(() => receiver.attempts.length > before + 30)
    replicas[0]!.signal('SIGCONT')
    const then = receiver.attempts.length
    await until(() => receiver.attempts.length > then + 30)
    over = true
    const told = await sending
    await until(settled)
    check(told)
  })
})
