import type { Probe } from '../../protocol/base/probe.ts'
import { readAddress } from '../../server/directory/redis-address.ts'
import { RedisLink } from '../../server/directory/redis-link.ts'
import { placeOf } from '../../server/directory/redis-store.ts'
import { NoRight } from '../../server/directory/store.ts'
import type { ServerConfig } from '../config/server.ts'
import { directoryOptions } from '../service/server-options.ts'
import { livingReplicas, probePeers } from './peers.ts'

const STEP_MS = 5000

/** Checks that Redis can be reached and grants each command that servers need. Also checks the other replicas in it. */
export async function probeDirectory(config: ServerConfig): Promise<Probe[]> {
  const options = directoryOptions(config)
  if (options === undefined) return []
  const prefix = options.prefix ?? ''
  const what = `--directory ${options.url}`
  const reached = { code: 'directory', what, expected: 'a Redis primary that admits this user and accepts writes' }
  const rights = { code: 'directory-rights', what, expected: 'all commands that servers need' }
  const hint = 'Grant what docs/scaling.md lists: ACL SETUSER.'
  let link: RedisLink | undefined
  try {
    const ignore = { message() {}, closed() {} }
    const place = placeOf(options.url, prefix)
    const open = async () => RedisLink.open(await readAddress(options), place, STEP_MS, ignore)
    // If the first of several hosts is off, the next attempt begins with another one.
    link = await (options.url.includes(',') ? open().catch(open) : open())
    const { key } = place
    const missing = await link.missingRights(key, prefix)
    const well: Probe = { ...reached, status: 'ok', found: 'reached', hint: '' }
    if (missing.length > 0) {
      return [
        well,
        ...missing.map(right => ({ ...rights, status: 'fail' as const, found: `no right to ${right.trim()}`, hint })),
      ]
    }
    const granted: Probe = { ...rights, status: 'ok', found: 'all of them', hint: '' }
    const problem = await link.checkWrites(key).then(
      () => undefined,
      (error: Error) => error.message,
    )
    if (problem !== undefined) {
      const why = 'It may be full, unable to save, or short of replicas.'
      return [{ ...reached, status: 'fail', found: problem, hint: why }, granted]
    }
    return [well, granted, ...(await probePeers(config, livingReplicas(await link.fields(key), Date.now())))]
  } catch (error) {
    const { message: found } = error as Error
    if (error instanceof NoRight) return [{ ...rights, status: 'fail', found, hint }]
    return [
      {
        ...reached,
        status: 'fail',
        found,
        hint: 'Check that Redis is running there, with TLS if the URL says rediss, and its user and password.',
      },
      { ...rights, status: 'skip', found: 'not reached', hint: '' },
    ]
  } finally {
    link?.close()
  }
}
