// @module-tag slow
import { testRows } from './row.ts'

testRows('server-update', 'server-restart', 'server-restart-kept', 'kill')
