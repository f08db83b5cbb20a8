import { formatAddress, type HostPort } from '../../protocol/base/host-port.ts'
import { configurationError, Failure, ofMisuse } from '../failure.ts'

/** Turns a failure to listen into one line that names the flag, or the socket that was given. Other errors are returned as they are. */
export function explainListenError(error: unknown, flag: string, address: string): unknown {
  if (error instanceof Failure) return error
  const code = (error as NodeJS.ErrnoException).code
  if (code === 'EADDRINUSE') return configurationError(`--${flag} ${address} is in use by another process`, error)
  if (code === 'EACCES')
    return configurationError(
      `--${flag} ${address}: permission denied; ports below 1024 need root or a systemd socket, higher ones, such as 8443, do not`,
      error,
    )
  if (code === 'EADDRNOTAVAIL')
    return configurationError(`--${flag} ${address}: this machine has no such address`, error)
  if (code === 'ENOTFOUND') return configurationError(`--${flag} ${address}: the name does not resolve`, error)
  return ofMisuse(error)
}

/** Explains it with the flag whose port the failed `listen` call was for, or with the first flag if that is not clear. */
export function explainListenErrorOf(
  error: unknown,
  addresses: Readonly<Record<string, HostPort | undefined>>,
): unknown {
  const given = Object.entries(addresses).filter((entry): entry is [string, HostPort] => entry[1] !== undefined)
  const [flag, address] = given.find(([, { port }]) => port === (error as { port?: number }).port) ?? given[0]!
  return explainListenError(error, flag, formatAddress(address))
}
