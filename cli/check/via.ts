/** Checks that the targets of a runtime accept connections, according to its connected clients. */
import { ERRORS, type ErrorCode } from '../../protocol/base/errors.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { askForAction, type Endpoint } from '../admin-client.ts'
import { asRow, asRows, shortId } from '../table.ts'
import { notTried, upstreamProbe } from './upstreams.ts'

type Row = Readonly<Record<string, unknown>>

/** Asks through the admin listener of a server, which also asks the other replicas. */
export async function probeVia(server: Endpoint, runtime: string): Promise<Probe[]> {
  const replicas = asRows(asRow(await askForAction(server, '/runtimes/check', { runtime })).replicas)
  const silent = replicas.flatMap(({ problem }) =>
    problem === undefined ? [] : [unanswered(`runtime "${runtime}"`, String(problem), ELSEWHERE)],
  )
  const instances = byInstance(replicas.flatMap(row => asRows(row.instances)))
  if (instances.length === 0 && silent.length === 0) return [notConnected(runtime)]
  return [...instances.flatMap(row => probesOf(runtime, row)), ...silent]
}

/** An instance with sessions on several replicas has answered each of them. The active instance comes first. */
function byInstance(rows: readonly Row[]): Row[] {
  const found = new Map<unknown, Row>()
  for (const row of rows) {
    const known = found.get(row.instance)
    if (known === undefined || 'problem' in known) found.set(row.instance, row)
  }
  return [...found.values()].sort((a, b) => Number(b.active === true) - Number(a.active === true))
}

function probesOf(runtime: string, row: Row): Probe[] {
  const who = `"${runtime}", ${row.active === true ? 'active' : 'standby'} ${shortId(row.instance)}`
  if (row.problem === 'unsupported') return [tooOld(who, String(row.software))]
  if (row.problem !== undefined) return [unanswered(who, 'the client did not answer in time')]
  const targets = asRows(row.targets)
  if (targets.length === 0) return [noTargets(who)]
  const probes = targets.map(({ route, ms, code }) => {
    return upstreamProbe(`${who}, route "${String(route)}"`, Number(ms), reasonOf(code), code)
  })
  return [...probes, ...notTried(Number(row.more))]
}

function reasonOf(code: unknown): string | undefined {
  if (code === undefined) return undefined
  return Object.hasOwn(ERRORS, String(code)) ? `${code}: ${ERRORS[code as ErrorCode].title}` : String(code)
}

const ELSEWHERE =
  'Clients there were not asked. `sallyport check server` here says which replica does not answer (peer).'
const ABOUT = { code: 'upstream', expected: 'connections' } as const

function notConnected(runtime: string): Probe {
  const hint =
    'Its client is not connected. `sallyport runtimes list` shows which are; `sallyport check client` says why not.'
  return { ...ABOUT, status: 'fail', what: `runtime "${runtime}"`, found: 'no session', expected: 'a session', hint }
}

function tooOld(what: string, software: string): Probe {
  const hint = 'Upgrade the client, or run `sallyport check client` beside it.'
  return { ...ABOUT, status: 'skip', what, found: `not supported by this client (${software})`, hint }
}

function unanswered(what: string, found: string, hint = 'Run `sallyport check client` there.'): Probe {
  return { ...ABOUT, status: 'fail', what, found, expected: 'an answer', hint }
}

function noTargets(what: string): Probe {
  return { ...ABOUT, status: 'skip', what, found: 'nothing to dial: every target depends on the request', hint: '' }
}
