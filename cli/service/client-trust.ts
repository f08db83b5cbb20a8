import type { ClientOptions, Tunnel } from '../../client/index.ts'
import { detached } from '../../protocol/base/guard.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { FilesWatch } from '../../protocol/base/watch-files.ts'
import { expiryOf, loadTls, type TlsPair } from '../../server/tls.ts'
import type { ClientConfig } from '../config/client.ts'
import { fileProblem } from '../failure.ts'
import { watchText } from './watch.ts'

type ClientTrust = Pick<ClientOptions, 'ca'> & { readonly tls: TlsPair | undefined }

/** Loads the authorities and the client certificate of the configuration. Rejects if a file cannot be used. */
export async function loadTrust(config: ClientConfig): Promise<ClientTrust> {
  const { 'tls.cert': cert, 'tls.key': key } = config
  return {
    ca: config.ca && (await Promise.all(config.ca.map(file => readPlain(file)))),
    tls: cert === undefined ? undefined : await loadTls({ cert: { file: cert }, key: { file: key! } }),
  }
}

/** Texts of those files, read before they are loaded, so that {@link watchTrust} notices changes in between. */
export async function readTrust(config: ClientConfig): Promise<ReadonlyMap<string, string>> {
  const files = [...(config.ca ?? []), config['tls.cert'], config['tls.key']].filter(file => file !== undefined)
  return new Map(await Promise.all(files.map(async file => [file, String(await readPlain(file))] as const)))
}

/** Reloads them when one of the files differs from `texts`. Bad files are logged, and the old ones stay in force. */
export function watchTrust(
  config: ClientConfig,
  texts: ReadonlyMap<string, string>,
  loaded: ClientTrust,
  tunnel: Tunnel,
  logger: Logger,
): FilesWatch & { inForce(): ClientTrust; certificates(): Record<string, number> } {
  let trust = loaded
  const reload = async () => {
    try {
      const fresh = await loadTrust(config)
      tunnel.setTrust(fresh)
      trust = fresh
      logger.info({}, 'certificates reloaded')
    } catch (error) {
      logger.error({ err: error }, 'the new certificates cannot be used; the old ones stay in force')
    }
  }
  const refuse = (file: string, error: unknown) =>
    logger.error(
      { file, err: { message: fileProblem(error) } },
      'certificates cannot be read; the old ones stay in force',
    )
  const soon = () => detached(logger, 'certificates', reload())
  const watching = [...texts].map(([file, text]) => watchText(file, text, soon, error => refuse(file, error)))
  return {
    inForce: () => trust,
    certificates: () => (trust.tls === undefined ? {} : { client: expiryOf(trust.tls) }),
    close: () => {
      for (const one of watching) one.close()
    },
  }
}
