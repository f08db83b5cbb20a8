import type { ClientOptions } from '../../client/index.ts'
import { CLIENT_SESSION_LIMITS, CONNECT_LIMITS } from '../../client/limits.ts'
import type { ClientConfig } from '../config/client.ts'
import { limitOptions } from '../config/setting.ts'

/** Options of `connect`, without those that have to be opened first. */
export function tunnelOptions(config: ClientConfig): Omit<ClientOptions, 'token' | 'target'> {
  return {
    url: config.server ?? [],
    connectTo: config['connect-to'],
    caOnly: config['ca-only'],
    tlsMin: config['tls.min'] === '1.2' ? 'TLSv1.2' : 'TLSv1.3',
    audience: config.audience,
    ...limitOptions(CONNECT_LIMITS, config),
    allowCallers: config['allow.callers'],
    inspect: config.inspect,
    proxy: config.proxy,
    limits: limitOptions(CLIENT_SESSION_LIMITS, config),
  }
}
