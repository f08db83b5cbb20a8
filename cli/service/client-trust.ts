import { isDeepStrictEqual } from 'node:util'
import type { ClientOptions, Tunnel } from '../../client/index.ts'
import { detached } from '../../protocol/base/guard.ts'
import { LastProblem } from '../../protocol/base/last-problem.ts'
import type { Logger } from '../../protocol/base/log.ts'
import { type FilesWatch, watchFiles } from '../../protocol/base/watch-files.ts'
import { expiryOf, loadTls, readPem, type TlsPair, tlsFiles } from '../../server/tls.ts'
import type { ClientConfig } from '../config/client.ts'

type ClientTrust = Pick<ClientOptions, 'ca'> & { readonly tls: TlsPair | undefined }

/** Loads the authorities and the client certificate of the configuration. Rejects if a file cannot be used. */
export async function loadTrust(config: ClientConfig): Promise<ClientTrust> {
  const files = tlsFiles(config['tls.cert'], config['tls.key'])
  return {
    ca: config.ca?.length ? await Promise.all(config.ca.map(file => readPem({ file }, 'authority'))) : undefined,
    tls: files && (await loadTls(files)),
  }
}

/** Loads them again when one of the files may have changed. Bad files are logged, and the old ones stay in force. */
export function watchTrust(
  config: ClientConfig,
  loaded: ClientTrust,
  tunnel: Tunnel,
  logger: Logger,
): Pick<FilesWatch, 'close'> & { inForce(): ClientTrust; certificates(): Record<string, number> } {
  let trust = loaded
  const problem = new LastProblem()
  /** Only one read at a time: an older read must not overwrite a newer one. */
  let queue = Promise.resolve()
  const reload = async () => {
    try {
      const fresh = await loadTrust(config)
      problem.clear()
      if (isDeepStrictEqual(fresh, trust)) return
      tunnel.setTrust(fresh)
      trust = fresh
      logger.info({}, 'certificates reloaded')
    } catch (error) {
      if (problem.isNew(error, watching.version))
        logger.error({ err: error }, 'the new certificates cannot be used; the old ones stay in force')
    }
  }
  const files = [...(config.ca ?? []), config['tls.cert'], config['tls.key']].filter(file => file !== undefined)
  const watching = watchFiles(files, logger, () => {
    queue = queue.then(reload)
    detached(logger, 'certificates', queue)
  })
  return {
    inForce: () => trust,
    certificates: () => (trust.tls === undefined ? {} : { client: expiryOf(trust.tls) }),
    close: () => watching.close(),
  }
}
