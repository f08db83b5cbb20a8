/** Tries to connect to a server step by step, as `connect` would, but registers nothing. */

import { once } from 'node:events'
import type { WebSocket } from 'ws'
import { formatDuration } from '../protocol/base/durations.ts'
import { messageOf } from '../protocol/base/errors.ts'
import { formatAddress } from '../protocol/base/host-port.ts'
import { noLogger } from '../protocol/base/log.ts'
import { checkMembers } from '../protocol/base/members.ts'
import type { Probe } from '../protocol/base/probe.ts'
import { readOwnClaims } from './claims.ts'
import type { Dialled } from './dial/dial.ts'
import { DialError } from './dial/dial-failure.ts'
import { Dialler } from './dial/dialler.ts'
import type { DialPhase } from './dial/explain.ts'
import { chooseProxy } from './dial/proxy.ts'
import { type ClientOptions, checkOptions, type ResolvedClientOptions } from './options.ts'
import { askKernel, DIRECTION_MS, findLoss } from './path-mtu.ts'
import { measureQuiet } from './quiet-way.ts'
import { measureThroughput, THROUGHPUT_BYTES, THROUGHPUT_MS } from './throughput.ts'
import { TokenKeeper } from './token.ts'

/** Time for each step of a dial. */
const STEP_MS = 5000
/** Time for all steps to one server. A slow server does not use up the time of the next one. */
const SERVER_MS = 30_000
/** Servers tolerate 30 s by default. */
const SKEW_WARN_MS = 5000
const SKEW_FAIL_MS = 30_000
const SOON_MS = 5 * 60_000
const PINGS = 5
/** IPv6 needs it. */
const LEAST_MTU = 1280
const NO_TOKEN = 'none'

/** What is expected of each step, and a hint in case it fails. */
const STEPS = {
  name: [
    'the name has an address',
    'Create the DNS record, or give an address with --connect-to. No answer: something drops DNS (port 53), or the first nameserver of this machine is dead.',
  ],
  tcp: [
    'the address accepts connections',
    'Refused: nothing is listening there. No answer: a firewall drops the packets; open TCP to that port, or give a proxy.',
  ],
  proxy: [
    'the proxy connects',
    'Ask whoever runs the proxy to allow CONNECT to this name and port. If its certificate is not trusted, give its authority with --ca.',
  ],
  tls: [
    'a certificate for this name, from an authority that is trusted here',
    'If the issuer is not that of the server, something on the path intercepts TLS: trust it with --ca, or bypass it. No answer: something on the path may drop large packets (MTU).',
  ],
  upgrade: [
    'a WebSocket of this protocol',
    'Dial the control endpoint: the public name of a runtime that is offline answers late. If the server has TLS, dial wss://. A proxy or load balancer on the path must pass Upgrade and Connection.',
  ],
  authentication: ['the server accepts the token', 'Its log says why it did not, under the request id.'],
  clock: ['within 30 s of the clock of the server', 'Set the clock of this machine (NTP).'],
  'round-trip': ['the server answers pings', 'Something on the path holds back WebSocket frames.'],
  throughput: [
    `${THROUGHPUT_BYTES / 1000} kB arrive within ${formatDuration(THROUGHPUT_MS)}`,
    'The path is slow, or something on it limits the rate: large bodies will take long. Or it drops large packets: --deep tells (mtu).',
  ],
  mtu: [
    'large packets pass in both directions, and the path MTU is at least 1280',
    'If they do not arrive: unless the path is slow, a part of it has a smaller MTU, and a firewall drops the ICMP messages that say so. Let ICMP pass, or lower the MTU of the interface that sends. Under 1280: IPv6 does not pass; correct the MTU of the interface or tunnel.',
  ],
  quiet: [
    'the connection may be idle for 8 s',
    'A proxy, load balancer or firewall cuts idle connections: raise its idle timeout, or ping more often (--ping.interval).',
  ],
} as const satisfies Record<string, readonly [expected: string, hint: string]>

type Step = keyof typeof STEPS
const DEEP: readonly Step[] = ['mtu', 'quiet']

const STEP_OF: Record<DialPhase, Step> = {
  resolve: 'name',
  connect: 'tcp',
  proxy: 'proxy',
  tls: 'tls',
  upgrade: 'upgrade',
}

/**
 * Checks the token and the proxy, and then for each server, in this order: name, TCP, TLS, WebSocket, authentication,
 * clock, round trip and throughput. With `deep`, it also tries whether large packets pass, and measures how long the
 * connection may be idle, up to 8 s. Fetching the token takes at most 10 s, each step at most 5 s, and each server at
 * most 30 s. Nothing is registered: the server sees a client that leaves before it sends `hello`. Throws TypeError for
 * options that can never work.
 *
 * @example
 * ```ts
 * import { diagnose } from 'sallyport/client'
 *
 * const probes = await diagnose({ url: 'wss://connect.example.com', token: 'a.b.c', target: 'http://127.0.0.1:3000' })
 * for (const { code, status, found, hint } of probes) console.log(status, code, found, hint)
 * ```
 */
export async function diagnose(options: ClientOptions, how: { deep?: boolean } = {}): Promise<Probe[]> {
  const settings = { ...checkOptions(options, { cors: [] }), handshakeTimeoutMs: STEP_MS }
  checkMembers('', how, { deep: 'boolean' })
  const { deep = false } = how
  const tokens = new TokenKeeper({ source: options.token, onFresh() {}, logger: noLogger })
  try {
    const token = await probeToken(tokens, settings)
    const hasToken = tokens.latest !== undefined
    // A server answers even a worthless token, so the path to it can be tried without a real one.
    if (!hasToken) tokens.set(NO_TOKEN)
    const dialler = new Dialler(options, settings, tokens)
    const found: Probe[] = []
    for (const [turn, server] of settings.servers.entries()) {
      const signal = AbortSignal.any([AbortSignal.timeout(SERVER_MS), ...(options.signal ? [options.signal] : [])])
      const { probe, isProxied } = probeProxy(server, options)
      const check = { dialler: probe.status === 'fail' ? undefined : dialler, server, turn, isProxied, hasToken, deep }
      found.push(probe, ...(await probeServer(check, signal)))
    }
    return [token, ...found]
  } finally {
    tokens.close()
  }
}

async function probeToken(tokens: TokenKeeper, { audience }: ResolvedClientOptions): Promise<Probe> {
  const probe = (status: Probe['status'], found: string, hint = ''): Probe => {
    const expected = `a JWT for a runtime, for the audience "${audience}", that has not expired`
    return { code: 'token', status, what: 'the token', found, expected, hint }
  }
  const renew = 'Give the client a fresh token.'
  let claims: ReturnType<typeof readOwnClaims>
  try {
    claims = readOwnClaims(await tokens.get())
  } catch (error) {
    return probe('fail', messageOf(error), renew)
  }
  if (claims === undefined) return probe('fail', 'it is not a JWT', renew)
  const { sub, exp, aud } = claims
  if (exp === undefined) return probe('fail', 'it has no expiry (exp)', renew)
  const leftMs = exp * 1000 - Date.now()
  if (leftMs <= 0)
    return probe('fail', `it expired ${formatDuration(-leftMs)} ago, by the clock of this machine`, renew)
  const found = `for "${sub ?? 'nobody'}", audience ${aud.join(', ') || 'none'}, expires in ${formatDuration(leftMs)}`
  if (sub === undefined || !aud.includes(audience)) return probe('warn', found, 'The server may refuse it.')
  return leftMs < SOON_MS ? probe('warn', found, 'It expires soon: make sure that it is renewed.') : probe('ok', found)
}

function probeProxy(server: URL, { proxy }: ClientOptions): { probe: Probe; isProxied: boolean } {
  const expected = 'the proxy that this network requires, if any (--proxy, HTTPS_PROXY, NO_PROXY)'
  const about = { code: 'proxy-choice', what: `the proxy to ${server.host}`, expected }
  try {
    const chosen = chooseProxy(server, proxy, process.env)
    const found = chosen === undefined ? 'none' : formatAddress(chosen)
    return { probe: { ...about, status: 'ok', found, hint: '' }, isProxied: chosen !== undefined }
  } catch (error) {
    const hint = 'Correct HTTPS_PROXY or ALL_PROXY, or give --proxy.'
    return { probe: { ...about, status: 'fail', found: messageOf(error), hint }, isProxied: false }
  }
}

interface ServerCheck {
  /** Undefined if the server cannot be dialled. */
  readonly dialler: Dialler | undefined
  readonly server: URL
  readonly turn: number
  readonly isProxied: boolean
  readonly hasToken: boolean
  readonly deep: boolean
}

async function probeServer(check: ServerCheck, signal: AbortSignal): Promise<Probe[]> {
  const { dialler, server, turn, isProxied, hasToken, deep } = check
  const isPlain = server.protocol === 'ws:'
  const steps = (Object.keys(STEPS) as Step[]).filter(
    step => !(step === 'proxy' && !isProxied) && !(step === 'tls' && isPlain) && !(DEEP.includes(step) && !deep),
  )
  const seen = new Map<Step, Probe>()
  const note = (step: Step, status: Probe['status'], found: string) => {
    const [expected, hint] = STEPS[step]
    const probe = { code: step, status, what: server.host, found, expected }
    seen.set(step, { ...probe, hint: status === 'ok' ? '' : hint })
  }
  const onStep = (step: DialPhase, found: string) => note(STEP_OF[step], 'ok', found)
  try {
    const dialled = await dialler?.dial(turn, signal, { onStep, eachStep: true })
    if (dialled !== undefined) await probeSession(dialled, signal, note)
    if (dialled !== undefined && deep) {
      const dial = async () => await dialler!.dial(turn, signal)
      await Promise.all([
        probeMtu(dial, isProxied ? 'proxy' : 'server', note),
        probeQuiet(async () => (await dial()).socket, note),
      ])
    }
  } catch (error) {
    const failed = stepOf(error, seen)
    if (failed === 'authentication') note('upgrade', 'ok', 'the control endpoint of a server answers')
    if (hasToken || failed !== 'authentication') note(failed, 'fail', messageOf(error))
  }
  for (const step of steps) if (!seen.has(step)) note(step, 'skip', 'not reached')
  return steps.map(step => seen.get(step)!)
}

type Note = (step: Step, status: Probe['status'], found: string) => void

/** Probes a session that the server has admitted, before it sends `hello`. */
async function probeSession({ socket, dateMs }: Dialled, signal: AbortSignal, note: Note): Promise<void> {
  note('authentication', 'ok', 'admitted; nothing was registered')
  const aheadMs = dateMs === undefined ? 0 : Date.now() - dateMs
  const apart = Math.abs(aheadMs)
  const found = dateMs === undefined ? 'the server does not say' : `${formatDuration(apart)} apart`
  note('clock', apart > SKEW_FAIL_MS ? 'fail' : apart > SKEW_WARN_MS ? 'warn' : 'ok', found)
  if (await probeRoundTrip(socket, signal, note)) noteThroughput(await measureThroughput(socket, signal), note)
  await leave(socket, signal)
}

/** False if no pong arrived, so that nothing more can be measured. */
async function probeRoundTrip(socket: WebSocket, signal: AbortSignal, note: Note): Promise<boolean> {
  try {
    const times = await roundTripsMs(socket, signal)
    note('round-trip', 'ok', `${times[times.length >> 1]!.toFixed(1)} ms, the median of ${times.length}`)
    return true
  } catch (error) {
    const isSilent = (error as Error).name === 'AbortError'
    note('round-trip', 'fail', isSilent ? `no answer within ${formatDuration(STEP_MS)}` : messageOf(error))
    return false
  }
}

function noteThroughput(ms: number | undefined, note: Note): void {
  if (ms === undefined) note('throughput', 'warn', 'they did not arrive in time')
  else note('throughput', 'ok', `at least ${Math.round(THROUGHPUT_BYTES / ms)} kB/s to the server`)
}

async function probeMtu(dial: () => Promise<Dialled>, peer: string, note: Note): Promise<void> {
  try {
    const { socket, tcp } = await dial()
    const lost = await findLoss(socket)
    const said = await askKernel(tcp)
    socket.terminate()
    const size = said
      ? `segments of ${said.segment} bytes to the ${peer}, path MTU ${said.mtu} by the kernel`
      : 'their size is unknown: only Linux with ss (iproute2) tells'
    if (lost === undefined) note('mtu', said && said.mtu < LEAST_MTU ? 'warn' : 'ok', `large packets pass; ${size}`)
    else {
      const late = `do not arrive within ${formatDuration(DIRECTION_MS)}`
      note('mtu', 'fail', `large packets ${lost} the server ${late}, small ones do; ${size}`)
    }
  } catch (error) {
    note('mtu', 'fail', messageOf(error))
  }
}

async function probeQuiet(dial: () => Promise<WebSocket>, note: Note): Promise<void> {
  try {
    const { survivedMs, cutMs } = await measureQuiet(dial)
    const survived = `survives ${formatDuration(survivedMs)} idle`
    if (cutMs !== undefined) note('quiet', 'fail', `${survived}, but is cut after ${formatDuration(cutMs)}`)
    else if (survivedMs > 0) note('quiet', 'ok', survived)
    else note('quiet', 'skip', 'the server ends a connection too soon to measure this (--limits.handshake)')
  } catch (error) {
    note('quiet', 'fail', messageOf(error))
  }
}

async function leave(socket: WebSocket, signal: AbortSignal): Promise<void> {
  if (socket.readyState === socket.CLOSED) return
  const closed = once(socket, 'close', { signal: within(signal) })
  socket.close(1000)
  await closed.catch(() => socket.terminate())
}

/** Round trips, shortest first. Rejects if the server ends the connection or does not answer. */
async function roundTripsMs(socket: WebSocket, signal: AbortSignal): Promise<number[]> {
  const over = within(signal)
  const closed = once(socket, 'close', { signal: over }).then(([code]) => {
    throw new Error(`the server ended the connection (${code})`)
  })
  const times: number[] = []
  const first = performance.now()
  // On a slow path, fewer have to do.
  while (times.length < PINGS && performance.now() - first < STEP_MS / 2) {
    const begun = performance.now()
    socket.ping()
    await Promise.race([once(socket, 'pong', { signal: over }), closed])
    times.push(performance.now() - begun)
  }
  return times.sort((a, b) => a - b)
}

/** Ends with the time of this step, or with `signal`. */
function within(signal: AbortSignal): AbortSignal {
  return AbortSignal.any([signal, AbortSignal.timeout(STEP_MS)])
}

/** The step in which a dial failed. */
function stepOf(error: unknown, seen: ReadonlyMap<Step, Probe>): Step {
  const failure = error instanceof Error && error.cause instanceof DialError ? error.cause.failure : undefined
  switch (failure?.kind) {
    case 'certificate':
      return STEP_OF[failure.phase]
    case 'answer':
      return failure.ours && [401, 500, 503].includes(failure.status) ? 'authentication' : 'upgrade'
    case 'subprotocol':
      return 'upgrade'
    case 'proxy':
      return 'proxy'
    case 'network':
    case 'timeout':
      // With TLS 1.3, a server that wants a client certificate says so only once the client counts the handshake as done.
      if (failure.phase === 'upgrade' && 'code' in failure && failure.code?.startsWith('ERR_SSL_')) return 'tls'
      return failure.phase === 'connect' && !seen.has('name') ? 'name' : STEP_OF[failure.phase]
    default:
      return seen.has('name') ? 'tcp' : 'name'
  }
}
