/** The table of planned and unplanned faults, and what each may cost. */
import type { Deployment, DeploymentOptions } from './deployment/deployment.ts'
import {
  blackHole,
  cutConnection,
  killRedis,
  killServer,
  reloadRoutes,
  renewToken,
  restartClient,
  restartServer,
  rotateCertificate,
  rotateKeys,
  takeOver,
  updateClient,
  updateServers,
} from './faults.ts'
import type { Random } from './random.ts'
import type { Account, Kind } from './traffic/ledger.ts'

export interface TrialRow {
  readonly name: string
  readonly title: string
  /** What it may cost, in words. */
  readonly allowance: string
  /** How often it happens at full size. */
  readonly times: number
  readonly servers: DeploymentOptions['servers']
  readonly proxy?: DeploymentOptions['proxy']
  /** The only server is restarted. */
  readonly alone?: boolean
  readonly keepsSockets?: boolean
  /** The grace of all processes at the usual pace, if the default of the trial is not suitable. Short streams and downloads end within it. */
  readonly graceS?: number
  /** Whether a peer goes silent, so that only pings notice. */
  readonly silent?: boolean
  readonly fault: (deployment: Deployment, turn: number, random: Random) => Promise<void>
  /** What must not happen, each in words. */
  readonly judge: (account: Account) => string[]
}

const client = (deployment: Deployment, turn: number) => deployment.clients[turn % deployment.clients.length]!

const NOTHING = 'nothing is lost'

export const ROWS: readonly TrialRow[] = [
  {
    name: 'client-update',
    title: 'client rolling update, new first',
    allowance: NOTHING,
    times: 10,
    servers: 1,
    fault: (deployment, turn) => updateClient(client(deployment, turn)),
    judge: nothingLost,
  },
  {
    name: 'client-restart',
    title: 'client restart in place, back within 3 s',
    allowance: NOTHING,
    times: 10,
    servers: 1,
    // Nobody serves while the old instance finishes its exchanges.
    graceS: 2,
    fault: (deployment, turn) => restartClient(deployment, client(deployment, turn)),
    // If the machine was too slow to have it back within 3 s, the row proves nothing.
    judge: account => nothingLost(account, account.notes.length > 0 ? ['lost'] : []),
  },
  {
    name: 'server-update',
    title: 'server rolling update, two replicas behind a proxy',
    allowance: NOTHING,
    times: 10,
    servers: 2,
    fault: deployment => updateServers(deployment.servers),
    judge: nothingLost,
  },
  {
    name: 'server-restart',
    title: 'one server restarted alone',
    allowance: 'all that was accepted is answered',
    times: 10,
    servers: 1,
    alone: true,
    fault: deployment => restartServer(deployment.servers[0]!),
    judge: account => nothingLost(account, ['refused']),
  },
  {
    name: 'server-restart-kept',
    title: 'one server restarted alone, whose sockets a supervisor keeps',
    allowance: NOTHING,
    times: 10,
    servers: 1,
    alone: true,
    keepsSockets: true,
    fault: deployment => deployment.servers[0]!.restart(),
    judge: nothingLost,
  },
  {
    name: 'token',
    title: 'token renewed',
    allowance: NOTHING,
    times: 50,
    servers: 1,
    fault: (deployment, turn) => renewToken(deployment, client(deployment, turn)),
    judge: nothingLost,
  },
  {
    name: 'keys',
    title: 'key set rotated',
    allowance: NOTHING,
    times: 10,
    servers: 1,
    fault: deployment => rotateKeys(deployment),
    judge: nothingLost,
  },
  {
    name: 'certificate',
    title: 'certificate rotated',
    allowance: NOTHING,
    times: 10,
    servers: 1,
    fault: deployment => rotateCertificate(deployment),
    judge: nothingLost,
  },
  {
    name: 'routes',
    title: 'routes reloaded',
    allowance: NOTHING,
    times: 10,
    servers: 1,
    fault: deployment => reloadRoutes(deployment),
    judge: nothingLost,
  },
  {
    name: 'cut',
    title: 'one of two connections cut (RST)',
    allowance: 'no GET is lost; a POST only if it was begun, with 502 once',
    times: 50,
    servers: 1,
    fault: (deployment, turn, random) => cutConnection(client(deployment, turn), random),
    judge: account => onlyBegunPosts(account, /session-lost/),
  },
  {
    name: 'black-hole',
    title: 'one of two connections black-holed',
    silent: true,
    allowance: 'no GET is lost; a POST only if it was begun, with 502 once',
    times: 10,
    servers: 1,
    fault: (deployment, turn, random) => blackHole(client(deployment, turn), random),
    judge: account => onlyBegunPosts(account, /session-lost/),
  },
  {
    name: 'redis',
    title: 'Redis killed and restarted',
    allowance: NOTHING,
    times: 5,
    servers: 2,
    fault: deployment => killRedis(deployment),
    judge: nothingLost,
  },
  {
    name: 'kill',
    title: 'kill -9 of one of two replicas',
    allowance: 'no GET is lost behind the proxy; a POST only if it was in flight there',
    times: 5,
    servers: 2,
    fault: (deployment, _turn, random) => killServer(random.pick(deployment.servers)),
    judge: account => onlyBegunPosts(account, /502/),
  },
  {
    name: 'takeover',
    title: 'takeover by a second instance',
    allowance: NOTHING,
    times: 10,
    servers: 1,
    fault: (deployment, turn) => takeOver(client(deployment, turn)),
    judge: nothingLost,
  },
]

/** A planned fault: only streams that outlive the grace may end, and they must end properly. */
function nothingLost(account: Account, allowed: readonly string[] = []): string[] {
  const problems = never(account)
  for (const kind of ['lost', 'cut', 'refused'] as const) {
    if (account.counts[kind] > 0 && !allowed.includes(kind)) problems.push(`${account.counts[kind]} ${kind}`)
  }
  if (problems.length > 0) problems.push(...account.reasons.keys())
  return problems
}

/** An unplanned one: exchanges in progress may break, visibly. POSTs are lost only with `reason`. */
function onlyBegunPosts(account: Account, reason: RegExp): string[] {
  const problems = never(account)
  for (const [text, count] of account.reasons) {
    const [kind = '', what = ''] = text.split(' ') as [Kind, string]
    if (what.startsWith('cut') || what.startsWith('outlived')) continue
    const isAllowed = kind === 'POST' ? reason.test(text) : kind !== 'GET'
    if (!isAllowed) problems.push(`${count} of ${text}`)
  }
  return problems
}

/** What no fault may cause. */
export function never(account: Account): string[] {
  return [...account.twice.map(id => `executed twice: ${id}`), ...account.wrong.map(what => `wrong: ${what}`)]
}
