/** The part of pino's interface that the library uses: an object with fields, then one sentence. */
export interface Logger {
  debug(fields: object, message: string): void
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

const silent = () => {}

/** Logs nothing. The default of every `logger` option. */
export const noLogger: Logger = { debug: silent, info: silent, warn: silent, error: silent }
