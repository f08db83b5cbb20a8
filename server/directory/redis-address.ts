/** Everything that a connection to Redis needs. */
import { readPlain } from '../../protocol/base/plain-file.ts'
import type { RedisAddress } from './redis-link.ts'
import type { RedisOptions } from './redis-options.ts'

/** Reads passwords from their files. */
export async function readAddress({ url, user, password, sentinel, ca }: RedisOptions): Promise<RedisAddress> {
  return {
    url,
    user,
    password: await readSecret(password),
    sentinel: sentinel && { user: sentinel.user, password: await readSecret(sentinel.password) },
    ca,
  }
}

async function readSecret(secret: RedisOptions['password']): Promise<string | undefined> {
  return typeof secret === 'object' ? String(await readPlain(secret.file)).trim() : secret
}
