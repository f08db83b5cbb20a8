/** The path of a request through the edge, layer by layer. */
import type { Cidrs } from '../../protocol/base/address.ts'
import type { ExchangeRecord, Handler, HttpRequest } from '../../protocol/exchange.ts'
import { callers } from '../../protocol/http/forwarded.ts'
import { loopGuard } from '../../protocol/http/loop-guard.ts'
import { type CorsPolicy, refusing } from '../../protocol/http/problem.ts'
import { type BodyBytes, record } from '../../protocol/http/record.ts'
import { compose, type Layer } from '../../protocol/layer.ts'
import { shielded } from '../../protocol/shield.ts'
import { type Access, access } from '../access/access.ts'
import type { Inbox } from '../inbox/inbox.ts'
import { inbox } from '../inbox/layer.ts'
import type { Carriers } from './carriers.ts'
import { type DeliverOptions, deliver } from './deliver.ts'
import { health } from './health.ts'
import { byHost, type Hosts } from './hosts.ts'
import type { Policies } from './policies.ts'
import { quota } from './quota.ts'
import type { QuotaBook } from './quotas.ts'
import { trace } from './trace.ts'

interface EdgeOptions extends Omit<DeliverOptions, 'refuse' | 'corsOf'> {
  readonly carriers: Carriers
  readonly hosts: Hosts
  readonly policies: Policies
  readonly trustedProxies: Cidrs
  /** Path that answers whether the server is `ready`, on any host. */
  readonly healthPath: string | undefined
  readonly ready: () => boolean
  readonly quotas: QuotaBook
  readonly access: Access | undefined
  readonly inbox: Inbox | undefined
  readonly onExchange: ((record: ExchangeRecord) => void) | undefined
  readonly bodyBytes: BodyBytes
  /** The embedder's own layers, in front of the sessions. */
  readonly layers: readonly Layer[]
}

export interface Edge {
  /** For requests of callers, whose host says which runtime they are for. */
  readonly handler: Handler
  /** For requests of an embedder, whose runtime is set already. */
  readonly embedded: Handler
  /** Which web origins may read the edge's own answers. */
  readonly corsOf: (request: HttpRequest) => CorsPolicy | undefined
}

export function createEdge(options: EdgeOptions): Edge {
  const { hosts, policies, quotas, carriers, tracing } = options
  const corsOf = (request: HttpRequest): CorsPolicy | undefined => {
    const runtime = request.runtime ?? hosts.runtimeOf(request.authority)
    return policies.find(runtime, request.path, runtime !== undefined && carriers.isOnline(runtime))
  }
  const refuse = refusing(corsOf)
  const recorded = record(options.onExchange, options.bodyBytes)
  const inward = shielded(options.layers, deliver({ ...options, refuse, corsOf }), options.logger)
  const embedded = compose([recorded, trace(tracing, () => true), quota(quotas, refuse)], inward)
  options.inbox?.start(embedded, refuse)
  return {
    handler: compose(
      [
        callers(options.trustedProxies),
        recorded,
        health(options.healthPath, options.ready, refuse),
        trace(tracing, request => request.fromTrustedProxy === true),
        loopGuard(refuse),
        byHost(hosts, refuse),
        quota(quotas, refuse, request => request.caller!.address),
        access(options.access, corsOf),
        inbox(options.inbox),
      ],
      inward,
    ),
    embedded,
    corsOf,
  }
}
