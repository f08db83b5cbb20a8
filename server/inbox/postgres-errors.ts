/** What the errors of PostgreSQL, and those of its connection, mean to us. */
import { UnusableError } from './grouped-store.ts'
import { StoreError } from './store.ts'

/** The user may not connect, or lacks a privilege. Waiting will not help. */
const UNUSABLE = /^(28|3D|42)/
/** The connection is useless: it broke, the server is stopping or read-only, or a transaction timed out. */
const BROKEN = /^(08|57P|25006|25P0[34])/
/** The change itself is impossible, or conflicted with another one. */
const REFUSED = /^(22|23|40|55P03)/
/** A statement was prepared before somebody altered its table, and stays refused. */
const STALE_PLAN = 'RevalidateCachedQuery'
const FULL = '53100'
/** Warns that a commit no longer waits for its standbys, since an operator has cancelled that or the server is shutting down. */
const NO_STANDBY = 'SyncRepWaitForLSN'
/** Tells PostgreSQL's own codes from those of a socket. */
const SQLSTATE = /^[\dFHPX][\dA-Z]{4}$/

export function isUnusable(error: unknown): boolean {
  return error instanceof UnusableError || UNUSABLE.test(codeOf(error))
}

export function refusesChange(error: unknown): boolean {
  return REFUSED.test(codeOf(error))
}

export function endsConnection(error: unknown): boolean {
  const code = codeOf(error)
  return !SQLSTATE.test(code) || BROKEN.test(code) || (error as PostgresNotice).routine === STALE_PLAN
}

export interface PostgresNotice {
  readonly message?: string | undefined
  readonly routine?: string | undefined
}

/** Whether no standby may have what was committed. The message depends on the language. Triggers and extensions warn as well. */
export function lacksStandby({ routine }: PostgresNotice): boolean {
  return routine === NO_STANDBY
}

export function storeErrorOf(error: unknown): StoreError {
  return new StoreError(codeOf(error) === FULL ? 'full' : 'away', (error as Error).message)
}

function codeOf(error: unknown): string {
  return (error as { code?: string }).code ?? ''
}
