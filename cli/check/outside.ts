/** Checks that requests to the public name arrive at the public listener unchanged, through whatever is in between. */
import { once } from 'node:events'
import { request as requestHttp } from 'node:http'
import { request as requestHttps } from 'node:https'
import { setTimeout as pause } from 'node:timers/promises'
import { WebSocket } from 'ws'
import { Resolver } from '../../client/dial/resolve.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import type { ServerOptions } from '../../server/index.ts'
import { publicUrl } from '../../server/public-url.ts'
import type { ServerConfig } from '../config/server.ts'
import { serverOptions } from '../service/server-options.ts'
import { reasonOf, remedyFor } from './attempt.ts'
import { NO_RIGHT } from './listeners.ts'
import { StandIn } from './stand-in.ts'

const STEP_MS = 5000
/** How long a load balancer may take to find out that something listens here again. */
const NOTICE_MS = 15_000
const AGAIN_MS = 500
/** A load balancer with several servers may use them in turn. */
const ARRIVALS = 4
/** Another server that has just started holds a request for 5 s (`--hold.time`) before it says that the runtime is offline. */
const ARRIVAL_MS = 10_000
const BODY_BYTES = 25 * 1024 * 1024
const BODY_MS = 15_000
/** Longer than the 60 s after which nginx and others cut, unless they are told otherwise. */
const QUIET_MS = 65_000
const MAX_ANSWER_BYTES = 4096
const NAME = 'sallyport-check'

const STEPS = {
  'outside-reach': [
    'requests to the public name arrive here',
    'Point DNS and the load balancer at this server. If other replicas answer, take them out of the load balancer meanwhile. If the load balancer answers 503, its health checks fail: let them GET --public.health-path, or /readyz at --health.listen.',
  ],
  'outside-host': [
    'Host as the caller sent it',
    'The load balancer must pass Host (nginx: proxy_set_header Host $http_host).',
  ],
  'outside-upgrade': [
    'WebSockets, and messages both ways',
    'The load balancer must pass Upgrade and Connection, over HTTP/1.1.',
  ],
  'outside-body': [
    '25 MiB arrive',
    'Raise the body limit of the load balancer (nginx: client_max_body_size), or its deadline for a body.',
  ],
  'outside-repeat': [
    'a POST without an answer arrives once',
    'The load balancer must not retry requests that are not safe to repeat (nginx: no non_idempotent; HAProxy: disable-l7-retry).',
  ],
  'outside-quiet': [
    'an answer continues after 65 s without a byte',
    'Raise the time that the load balancer waits for the server (nginx: proxy_read_timeout).',
  ],
} as const satisfies Record<string, readonly [expected: string, hint: string]>

type Code = keyof typeof STEPS

const STOP = 'Stop the server for this check, and its socket unit if it has one.'

interface OutsideOptions {
  /** Authorities (PEM) to trust instead of Node's own. */
  readonly ca: string | undefined
  /** Also runs the checks that take long. */
  readonly deep: boolean
  readonly quietMs?: number
}

/** The server must not be running: a stand-in listens in its place. */
export async function probeOutside(
  config: ServerConfig,
  { ca, deep, quietMs = QUIET_MS }: OutsideOptions,
): Promise<Probe[]> {
  const codes = (Object.keys(STEPS) as Code[]).filter(code => deep || code !== 'outside-quiet')
  const probes = new Map<Code, Probe>()
  const what = `callers at ${config['public.url'] ?? config.domain?.[0]}`
  const note: Note = (code, status, found, hint = STEPS[code][1]) => {
    const [expected] = STEPS[code]
    probes.set(code, { code, status, what, found, expected, hint: status === 'ok' ? '' : hint })
  }
  const health = config['health.listen'] === 'off' ? undefined : config['health.listen']
  const options = { ...serverOptions(config, [], new Map()), health, quietMs }
  const standIn = await StandIn.open({ ...options, public: options.public! }).catch((error: NodeJS.ErrnoException) => {
    note('outside-reach', 'fail', error.message, error.code === 'EACCES' ? NO_RIGHT : STOP)
  })
  try {
    if (standIn) await probeAll(new Outside(options, standIn, ca), standIn, codes, note, quietMs)
  } finally {
    await standIn?.close()
  }
  return codes.map(code => {
    if (!probes.has(code)) note(code, 'skip', 'not reached')
    return probes.get(code)!
  })
}

type Note = (code: Code, status: Probe['status'], found: string, hint?: string) => void

async function probeAll(
  outside: Outside,
  standIn: StandIn,
  codes: readonly Code[],
  note: Note,
  quietMs: number,
): Promise<void> {
  const host = await reach(outside, note)
  if (host === undefined) return
  note('outside-host', host === outside.url.host ? 'ok' : 'fail', `Host: ${host}`)
  await attempt('outside-upgrade', note, () => outside.echo())
  await attempt('outside-body', note, async () => {
    const begun = performance.now()
    const { status, text } = await outside.ask('body', { body: Buffer.alloc(BODY_BYTES), ms: BODY_MS })
    const rate = (BODY_BYTES / 1000 / (performance.now() - begun)).toFixed(1)
    return status === 200 && text === String(BODY_BYTES) ? `all of it, at ${rate} MB/s` : fail(`answered ${status}`)
  })
  // Whatever the answer is, any retry has already arrived by then.
  await outside.ask('cut', { body: Buffer.from('once') }).catch(() => {})
  note('outside-repeat', standIn.cut === 1 ? 'ok' : 'fail', `arrived ${times(standIn.cut)}`)
  if (!codes.includes('outside-quiet')) return
  // One that counts failures, such as nginx with several servers, takes this one for down after that.
  await arrived(outside).catch(() => {})
  await attempt('outside-quiet', note, async () => {
    const { status, text } = await outside.ask('quiet', { ms: quietMs + STEP_MS })
    return status === 200 && text === 'begun, ended' ? `${quietMs / 1000} s` : fail(`answered ${status}, and was cut`)
  })
}

/** Returns the Host that arrived. */
async function reach(outside: Outside, note: Note): Promise<string | undefined> {
  try {
    await outside.resolve()
    for (let turn = 1; ; turn++) {
      const { status, text, by } = await arrived(outside)
      const answer = status === 200 && text.startsWith('{') ? (JSON.parse(text) as Record<string, unknown>) : {}
      if (answer.secret !== outside.secret) {
        const other = turn > 1 ? 'something else answers, too' : 'something else answers'
        note('outside-reach', 'fail', `${other}, ${status}${by === undefined ? '' : `: "${by}"`}`)
        return undefined
      }
      if (turn < ARRIVALS) continue
      note('outside-reach', 'ok', `${outside.url.host} arrives${by === undefined ? '' : `, through "${by}"`}`)
      return String(answer.host)
    }
  } catch (error) {
    note('outside-reach', 'fail', reasonOf(error), remedyFor(error, '--outside.ca'))
    return undefined
  }
}

/**
 * A load balancer without a server answers 502, 503 or 504 by itself, until its health checks have found the stand-in. One that does
 * not read HTTP refuses or closes connections.
 */
async function arrived(outside: Outside): Promise<Answer> {
  const endMs = performance.now() + NOTICE_MS
  for (;;) {
    const isLast = performance.now() > endMs
    const answer = await outside.ask('arrived', { ms: ARRIVAL_MS }).catch((error: NodeJS.ErrnoException) => {
      if (isLast || !CLOSED.has(error.code ?? '')) throw error
    })
    const isWaiting = answer === undefined || (/^50[234]$/.test(`${answer.status}`) && !isOurs(answer))
    if (!isWaiting || isLast) return answer!
    await pause(AGAIN_MS)
  }
}

const CLOSED: ReadonlySet<string> = new Set(['ECONNREFUSED', 'ECONNRESET', 'EPIPE'])

/** Whether it is an answer of a server of ours, such as another replica. */
function isOurs({ text }: Answer): boolean {
  return text.includes('urn:sallyport:')
}

async function attempt(code: Code, note: Note, work: () => Promise<string>): Promise<void> {
  try {
    note(code, 'ok', await work())
  } catch (error) {
    note(code, 'fail', reasonOf(error))
  }
}

interface Answer {
  readonly status: number
  readonly text: string
  /** The name that the answering or forwarding software gives itself. */
  readonly by: string | undefined
}

/** A caller of the public name. */
class Outside {
  readonly url: URL
  readonly secret: string
  #options: object = { autoSelectFamily: true, agent: false }

  constructor(server: Pick<ServerOptions, 'public' | 'domains'>, { port, secret }: StandIn, ca: string | undefined) {
    this.url = new URL(publicUrl(server.public, server.domains, port, NAME)!)
    this.secret = secret
    this.#options = { ...this.#options, ...(ca === undefined ? {} : { ca }) }
  }

  /** Rejects if the name has no address. */
  async resolve(): Promise<void> {
    const late = pause(STEP_MS, undefined, { ref: false }).then(() => fail('no resolver answered in time'))
    const addresses = await Promise.race([new Resolver(undefined).resolve(this.url.hostname), late])
    const lookup = (_name: string, _options: object, callback: (error: null, found: object) => void) => {
      callback(null, addresses)
    }
    this.#options = { ...this.#options, lookup }
  }

  async ask(path: string, { body, ms = STEP_MS }: { body?: Buffer; ms?: number }): Promise<Answer> {
    const url = new URL(`/${this.secret}/${path}`, this.url)
    const send = url.protocol === 'https:' ? requestHttps : requestHttp
    const signal = AbortSignal.timeout(ms)
    const request = send(url, { ...this.#options, method: body === undefined ? 'GET' : 'POST', signal })
    request.on('error', () => {})
    request.end(body)
    const [response] = await once(request, 'response', { signal })
    let text = ''
    for await (const chunk of response.setEncoding('latin1')) text = (text + chunk).slice(0, MAX_ANSWER_BYTES)
    const { via, server } = response.headers
    return { status: response.statusCode, text, by: via ?? server }
  }

  async echo(): Promise<string> {
    const url = new URL(`/${this.secret}/socket`, this.url)
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
    const signal = AbortSignal.timeout(STEP_MS)
    const socket = new WebSocket(url, { ...this.#options, handshakeTimeout: STEP_MS, maxPayload: 1024 })
    socket.on('error', () => {})
    try {
      await once(socket, 'open', { signal })
      socket.send('echo')
      const [message] = await once(socket, 'message', { signal })
      return String(message) === 'echo' ? 'a message came back' : fail('a different message came back')
    } finally {
      socket.terminate()
    }
  }
}

function times(count: number): string {
  return count === 1 ? 'once' : `${count} times`
}

function fail(message: string): never {
  throw new Error(message)
}
