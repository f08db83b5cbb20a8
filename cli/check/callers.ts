/** Checks what the server asks about callers: the key sets of their tokens, and the services that decide who may call. */
import { urlForLogs } from '../../protocol/base/path.ts'
import type { Probe } from '../../protocol/base/probe.ts'
import { DEFAULT_ALGORITHMS } from '../../protocol/base/token-algorithms.ts'
import type { HttpRequest } from '../../protocol/exchange.ts'
import { ForwardAuthCheck } from '../../server/access/forward-auth.ts'
import { FORWARD_AUTH_MS, type ForwardAuth } from '../../server/access/options.ts'
import type { AccessConfig, ServerConfig } from '../config/server.ts'
import { accessOptions } from '../service/server-options.ts'
import { ATTEMPT_MS, attempt } from './attempt.ts'
import { probeKeySet } from './documents.ts'

const CHECK = 'sallyport-check'
/** Of nobody (RFC 5737), so that the service takes the caller for a stranger. */
const STRANGER = '192.0.2.1'

/** All sets of rules, including those of `--access.files`. */
export async function probeCallers(config: ServerConfig, sets: readonly AccessConfig[]): Promise<Probe[]> {
  const files = ['', ...(config['access.files'] ?? [])]
  const probes = sets.map(async (set, at) => {
    const { jwt, forwardAuth, runtimes } = accessOptions(set) ?? {}
    const flag = (name: string) => (at === 0 ? `--${name}` : `${files[at]}: ${name}`)
    const host = `${runtimes?.[0] ?? CHECK}.${config.domain?.[0]}`
    return [
      ...(await probeKeySet(flag('access.jwt.jwks'), jwt?.jwks, DEFAULT_ALGORITHMS, 'callers')),
      ...(forwardAuth === undefined ? [] : [await probeForwardAuth(flag, forwardAuth, host)]),
    ]
  })
  return (await Promise.all(probes)).flat()
}

/** Asks about a `GET /` by a caller without credentials, which any stranger could send at any time. */
async function probeForwardAuth(flag: (name: string) => string, options: ForwardAuth, host: string): Promise<Probe> {
  const what = `${flag('access.forward-auth.url')} ${urlForLogs(options.url)}`
  const about = { code: 'forward-auth', what, expected: 'a refusal: 401, 403 or a redirect' }
  const hint = 'Callers get 503 unless it answers 2xx, 401, 403 or a redirect.'
  const service = new ForwardAuthCheck(options)
  const look = async () => {
    const headers = ['user-agent', CHECK]
    const denied = await service.check(requestTo(host, headers), headers, new AbortController().signal)
    if (denied !== undefined) return { found: `it refuses a caller without credentials (${denied.status})` }
    const found = 'it allows a caller without credentials'
    return { status: 'warn' as const, found, hint: 'If everybody may call, all is well. Otherwise correct the URL.' }
  }
  try {
    return await attempt(
      about,
      { hint, ca: flag('access.forward-auth.ca') },
      look,
      Math.min(options.timeoutMs ?? FORWARD_AUTH_MS, ATTEMPT_MS),
    )
  } finally {
    service.close()
  }
}

function requestTo(host: string, headers: string[]): HttpRequest {
  return {
    ...{ method: 'GET', authority: host, path: '/', headers, bodyBytes: 0, upgrade: false, exchangeId: undefined },
    peerAddress: STRANGER,
    encrypted: true,
    caller: { address: STRANGER, scheme: 'https', host },
    requestId: CHECK,
  }
}
